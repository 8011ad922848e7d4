"""Tool calls, as they stand in a prompt and as a scripted reply makes them.

A call is rendered in three pieces that begin with white space, so that each is whole tokens whatever stands
before it (see `tokens`): ``\\n{"name":"bash","arguments":`` and `` {"command":"ls"}`` and ``\\n}``. Its id
is left out, as most chat templates do, and the arguments are compact JSON however a client spaced them. So
what a client sends back is what the cache holds, if name, values and the order of the keys are as they were.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec


@dataclass(frozen=True)
class ToolCall:
    """``arguments`` is JSON text, as OpenAI's API has it."""

    name: str
    arguments: str

    @property
    def pieces(self) -> tuple[str, str, str]:
        """Up to the arguments, the arguments behind one space, and the end."""
        name = msgspec.json.encode(self.name).decode()
        return f'\n{{"name":{name},"arguments":', f" {self.arguments}", "\n}"


def rendered_call(call: Any) -> str:
    """The text in the prompt of a call that a client sends back; of what is no function call, its JSON."""
    match call:
        case {"function": {"name": str(name), "arguments": arguments}}:
            return "".join(ToolCall(name, compact_json(arguments)).pieces)
        case _:
            return "\n" + msgspec.json.encode(call).decode()


def compact_json(arguments: Any) -> str:
    """A value, or the text of one, without white space around its parts; text that is no JSON as it is."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return str(arguments)
    return msgspec.json.encode(arguments).decode()


def call_id(prompt_digest: bytes, place: int) -> str:
    """The id of a reply's call: prompts grow, so no two of a conversation's calls share one."""
    mark = blake2b(prompt_digest + place.to_bytes(4, "big"), digest_size=12, person=b"tool call")
    return f"call_{mark.hexdigest()}"
