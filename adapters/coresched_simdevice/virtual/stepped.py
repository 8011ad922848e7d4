"""A loop that its caller lets run piece by piece, though it was written to run for ever."""

import threading
from collections.abc import Callable


class SteppedThread:
    """Runs ``body`` in a thread of its own, but only while `resume` waits for it.

    Caller and body are thus never at work at the same time, as if the body were a coroutine that yields where
    it calls `pause`, however deep in its calls. So what they do together is deterministic and needs no locks.
    """

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._may_run = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.ended = False
        """Whether the body has returned or raised."""
        self._thread = threading.Thread(target=self._main, daemon=True)

    def resume(self) -> None:
        """Let the body run until it pauses or ends. Raises what the body raised, once."""
        if self.ended:
            raise RuntimeError("the loop has ended; it cannot be resumed")
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._may_run.release()
        self._paused.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def pause(self) -> None:
        """For the body only: give way until `resume` is called again."""
        self._paused.release()
        self._may_run.acquire()

    def _main(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self._error = error
        self.ended = True
        self._paused.release()
