"""A chat's messages, read from a request's body."""

from collections.abc import Sequence
from dataclasses import dataclass

from coresched.lab.worker.calls import rendered_call
from coresched.lab.worker.fields import Fields
from coresched.lab.worker.tokens import ROLES


@dataclass(frozen=True)
class Chat:
    """(role, text) of each message; tool calls stand behind the content."""

    messages: Sequence[tuple[str, str]]

    @property
    def task(self) -> str:
        """The text of the first message of the user; of all messages, if the user has none."""
        for role, text in self.messages:
            if role == "user":
                return text
        return "\n".join(text for _, text in self.messages)

    @property
    def replies(self) -> int:
        """Messages of the assistant so far."""
        return sum(role == "assistant" for role, _ in self.messages)


def read_chat(body: Fields) -> Chat:
    """The field ``messages``. Raises RefusedError."""
    messages = body.items("messages", "a list of at least one message")
    return Chat([_message(Fields(message, f"messages[{place}]")) for place, message in enumerate(messages)])


def _message(message: Fields) -> tuple[str, str]:
    role = message.text("role")
    if role not in ROLES:
        message.refuse("role", f"one of {', '.join(ROLES)}")
    content = message.raw("content")
    if isinstance(content, list):
        parts = [Fields(part, f"{message.name('content')}[{place}]") for place, part in enumerate(content)]
        texts = [_part(part) for part in parts]
    else:
        texts = [message.text("content") or ""]
    if message.raw("tool_calls"):
        calls = message.items("tool_calls", "a list of calls")
        texts.extend(map(rendered_call, calls))
    elif content is None and role != "assistant":
        message.refuse("content", "a string or a list of text parts")
    return role, "".join(texts)


def _part(part: Fields) -> str:
    if part.raw("type") != "text":
        part.refuse("type", "'text', the only kind of content that this worker takes")
    text = part.text("text")
    if text is None:
        part.refuse("text", "a string")
    return text
