"""What the processes of a fleet say to each other, and the sockets on which they say it."""

import socket
import struct
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

_LENGTH = struct.Struct("!I")


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


class Parse(Message, frozen=True, tag=True):
    """To the template, first: the engine's own flags, for every engine."""

    flags: list[str]
    model_path: str
    policies: list[str]
    """What the runs will order waiting queues by."""


class Parsed(Message, frozen=True, tag=True):
    version: str
    policy: str
    """What orders the waiting queue by the flags, or by default; in the engine's own words."""
    policies: list[str]
    """What else can order it."""
    given: list[str]
    """Names of the fields that the flags set."""
    mixed: bool
    """Whether a step can have both prefill and decode."""


class Boot(Message, frozen=True, tag=True):
    """To the template, with the engine's socket: fork an engine."""

    arguments: dict[str, Any]
    """Fields of the engine's arguments that this engine has beside, or instead of, the flags."""
    environment: dict[str, str]


class Forked(Message, frozen=True, tag=True):
    pid: int


class Reap(Message, frozen=True, tag=True):
    """To the template: wait for the end of an engine's process."""

    pid: int


class Reaped(Message, frozen=True, tag=True):
    code: int
    """Its exit code, or the negative number of the signal that ended it."""


class Ready(Message, frozen=True, tag=True):
    """From an engine, when it has booted."""

    vocabulary: int
    longest_prompt: int
    """Tokens that the prompt of one request may have."""
    longest_request: int
    """The same with its output."""
    kv_tokens: int
    state_slots: int | None
    """None for a model without recurrent states."""
    state_slot_tokens: float
    """The KV tokens that take as much memory as a slot; 0 without states."""
    slots_per_request: int
    shared_pool: bool
    """Whether tokens and states are of one pool, which then holds either so many tokens or so many states."""
    max_running_requests: int
    page_size: int
    prefill_chunk_tokens: int
    overlap: bool


class Submit(Message, frozen=True, tag=True):
    request_id: str
    prompt: bytes
    """Token ids, of 8 bytes each."""
    output_tokens: int
    label: str
    at: float


class Advance(Message, frozen=True, tag=True):
    until: float


class Ended(Message, frozen=True, tag=True):
    """A request that has; times are virtual seconds."""

    request_id: str
    first_token_s: float | None
    finished_s: float
    cached_tokens: int
    queue_s: float
    retractions: int
    output: bytes
    """Token ids, of 8 bytes each."""
    aborted: str | None


class Advanced(Message, frozen=True, tag=True):
    next_event_s: float
    """Nothing finishes before this time; inf while nothing is in flight."""
    ended: list[Ended]


class Close(Message, frozen=True, tag=True):
    """To an engine: say the counts and end."""


class Counts(Message, frozen=True, tag=True):
    busy_s: float
    prefilled_tokens: int


class Refused(Message, frozen=True, tag=True):
    """In place of an answer: what the user gave cannot be used."""

    reason: str


class Failed(Message, frozen=True, tag=True):
    """In place of an answer: something else went wrong."""

    reason: str


AnyMessage: TypeAlias = (
    Parse
    | Parsed
    | Boot
    | Forked
    | Reap
    | Reaped
    | Ready
    | Submit
    | Advance
    | Advanced
    | Close
    | Counts
    | Refused
    | Failed
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyMessage).decode


class Channel:
    """Messages over a stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: AnyMessage, fd: int | None = None) -> None:
        """Send, with a file descriptor if one is given. Does nothing where nobody listens any more."""
        data = _encode(message)
        with suppress(BrokenPipeError, ConnectionResetError):
            if fd is None:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
            else:
                socket.send_fds(self._socket, [_LENGTH.pack(len(data))], [fd])
                self._socket.sendall(data)

    def receive(self) -> AnyMessage | None:
        """The next message; None where the other process has ended."""
        return self.receive_with_fd()[0]

    def receive_with_fd(self) -> tuple[AnyMessage | None, int | None]:
        """The same, and the file descriptor that came with it."""
        try:
            head, fds, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
            if len(head) < _LENGTH.size:
                head += self._exactly(_LENGTH.size - len(head))
            data = self._exactly(_LENGTH.unpack(head)[0])
        except (EOFError, ConnectionResetError):
            return None, None
        return _decode(data), fds[0] if fds else None

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            received = self._socket.recv_into(view)
            if not received:
                raise EOFError
            view = view[received:]
        return bytes(data)

    def close(self) -> None:
        self._socket.close()
