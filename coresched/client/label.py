"""The trajectory label in scope: what a transport routes a model call by, without being told in the call.

A context variable, so it follows `await`, `asyncio.gather`, tasks and `asyncio.to_thread`, and two tasks do
not see each other's. A thread that was started by hand begins without a label.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType

from coresched.core.checks import check_label


class Scope:
    """A label in scope. Inside a turn that was routed, `worker` is where that turn counts its request."""

    __slots__ = ("ended", "label", "outer", "worker")

    def __init__(self, label: str, worker: str | None, outer: Scope | None) -> None:
        self.label = label
        self.worker = worker
        self.outer = outer
        self.ended = False


# Never reset by token: a token is refused in another context, and puts back what may have ended since.
_innermost: ContextVar[Scope | None] = ContextVar("coresched_label", default=None)


def _open(scope: Scope | None) -> Scope | None:
    """The scope itself or the nearest around it that has not ended."""
    while scope is not None and scope.ended:
        scope = scope.outer
    return scope


def open_scope(label: str, worker: str | None = None) -> Scope:
    """Put a label in scope, with the worker that an open turn was routed to."""
    scope = Scope(label, worker, _open(_innermost.get()))
    _innermost.set(scope)
    return scope


def end_scope(scope: Scope) -> None:
    """End a turn's scope everywhere, also for tasks that began inside it; from any context, once or more."""
    scope.ended = True
    if _innermost.get() is scope:
        _innermost.set(_open(scope))


def label_in_scope() -> str | None:
    """The innermost label in scope, if there is one."""
    scope = _open(_innermost.get())
    return None if scope is None else scope.label


def worker_in_scope(label: str) -> str | None:
    """Where an open turn of this label counts its request; None without such a turn."""
    scope = _open(_innermost.get())
    while scope is not None:
        if scope.label == label and scope.worker is not None:
            return scope.worker
        scope = _open(scope.outer)
    return None


def check_header_text(label: str, name: str) -> str:
    """The label, if an HTTP header can hold it; else ValueError."""
    if not (label.isascii() and label.isprintable() and label == label.strip()):
        raise ValueError(f"{name} must be printable ASCII to travel in a header, got {label!r}")
    return label


class label:
    """`with coresched.label("traj-17"):` puts a trajectory label in scope, in sync and async code alike.

    Model calls made in the block, and in tasks that begin in it, are routed by this label and carry it. An
    open turn of a Batch does the same by itself. The innermost label counts.
    Raises TypeError or ValueError for what is no label: text of 1 to 512 bytes of UTF-8.
    """

    def __init__(self, name: str) -> None:
        self._name = check_label(name, "label")
        self._scope: Scope | None = None

    def __enter__(self) -> str:
        if self._scope is not None:
            raise RuntimeError(f"coresched.label({self._name!r}) is entered already; make one for each block")
        self._scope = open_scope(self._name)
        return self._name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scope, self._scope = self._scope, None
        if scope is None:
            return
        if _innermost.get() is scope:  # not ended: tasks that began in the block keep its label
            _innermost.set(_open(scope.outer))
        else:  # left in another context, such as a generator's that was closed elsewhere
            end_scope(scope)
