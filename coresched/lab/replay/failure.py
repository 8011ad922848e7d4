"""Why a request, or the whole replay, did not go on."""


class EndpointError(Exception):
    """A request that got no usable answer. The message continues "endpoint URL ..."."""

    def __init__(self, message: str, *, may_retry: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.may_retry = may_retry
        """Whether the same request may succeed later, or elsewhere."""
        self.timed_out = timed_out
        """Whether it was given the whole time that a request may take."""


class ReplayError(Exception):
    """The replay cannot go on: its message is one line, complete on its own."""
