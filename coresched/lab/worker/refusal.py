"""A request that the worker refuses: a status and one sentence, as OpenAI's API says it."""

from typing import Any


class RefusedError(Exception):
    """Nothing was queued. ``field`` is where in the body the mistake is, or None."""

    def __init__(self, message: str, *, field: str | None = None, status: int = 400, code: str = "") -> None:
        super().__init__(message)
        self.message, self.field, self.status = message, field, status
        self.code = code or None


def error_body(
    status: int, message: str, field: str | None = None, code: str | None = None
) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}
