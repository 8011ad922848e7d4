"""What each endpoint answers: whole, and as the chunks of a stream."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from coresched.lab.worker.asked import Asked
from coresched.lab.worker.calls import call_id
from coresched.lab.worker.script import Part
from coresched.lab.worker.tokens import decode, whole_characters

Json = dict[str, Any]


class Answer(Protocol):
    """How one request is answered."""

    def whole(self) -> Json:
        """The answer without streaming, once the reply is done."""

    def chunk(self, sent: int, produced: int) -> list[Json]:
        """The reply's tokens from ``sent`` to ``produced``, in the first chunk from 0.

        A character that is cut in two comes with its end.
        """

    def closing(self) -> list[Json]:
        """What follows the last token."""


def usage(asked: Asked) -> Json:
    request = asked.request
    prompt, completion = len(request.prompt), request.produced
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": request.cached_tokens},
    }


@dataclass
class OpenAiAnswer:
    """Of /v1/chat/completions and /v1/completions."""

    asked: Asked
    model: str
    kind: Literal["chat", "text"]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> Json:
        body, name = {"message": self._message()}, "chat.completion"
        if self.kind == "text":
            body, name = self._text(0, len(self.asked.request.reply)), "text_completion"
        return self._object(name, [self._choice(body, self._finish_reason)]) | {"usage": usage(self.asked)}

    def chunk(self, sent: int, produced: int) -> list[Json]:
        if self.kind == "text":
            return [self._chunk(self._text(sent, produced), None)]
        deltas = list(self._deltas(sent, produced))
        if not sent:
            first = deltas.pop(0) if deltas and "content" in deltas[0] else {"content": None}
            deltas.insert(0, {"role": "assistant"} | first)
        return [self._chunk({"delta": delta}, None) for delta in deltas]

    def closing(self) -> list[Json]:
        last: Json = {"text": ""} if self.kind == "text" else {"delta": {}}
        chunks = [self._chunk(last, self._finish_reason)]
        if self.asked.include_usage:
            chunks.append(self._object(self._chunk_name, []) | {"usage": usage(self.asked)})
        return chunks

    def _message(self) -> Json:
        scripted = self.asked.scripted
        if scripted is None:
            return {"role": "assistant", "content": self._between(0, len(self.asked.request.reply))}
        message: Json = {"role": "assistant", "content": scripted.content or None}
        if scripted.calls:
            message["tool_calls"] = [
                self._call(place) | {"function": {"name": call.name, "arguments": call.arguments}}
                for place, call in enumerate(scripted.calls)
            ]
        return message

    def _deltas(self, sent: int, produced: int) -> Iterator[Json]:
        """What the tokens add to the message: text, a call's name, or text of its arguments."""
        scripted = self.asked.scripted
        parts = (Part("content", 0, produced),) if scripted is None else scripted.parts
        for part in parts:
            first, end = max(sent, part.first), min(produced, part.end)
            if first >= end:
                continue
            if part.kind == "content":
                if text := self._between(first, end):
                    yield {"content": text}
            elif part.kind == "opening" and end == part.end:
                assert scripted is not None, "words have no calls"
                function = {"name": scripted.calls[part.call].name, "arguments": ""}
                yield self._call_delta(part, self._call(part.call) | {"function": function})
            elif part.kind == "arguments":
                # Behind the space that makes them whole tokens.
                text = self._between(first, end)
                if self._whole(first) == part.first:
                    text = text[1:]
                if text:
                    yield self._call_delta(part, {"function": {"arguments": text}})

    def _call(self, place: int) -> Json:
        return {"id": call_id(self.asked.request.digests.whole, place), "type": "function"}

    @staticmethod
    def _call_delta(part: Part, call: Json) -> Json:
        return {"tool_calls": [{"index": part.call} | call]}

    def _text(self, first: int, end: int) -> Json:
        ids = list(self.asked.request.reply[first:end])
        return {"text": self._between(first, end)} | ({"token_ids": ids} if self.asked.token_ids else {})

    def _between(self, first: int, end: int) -> str:
        return decode(self.asked.request.reply[self._whole(first) : self._whole(end)])

    def _whole(self, place: int) -> int:
        return whole_characters(self.asked.request.reply, place)

    @property
    def _finish_reason(self) -> str:
        if self.asked.scripted is not None and self.asked.scripted.calls:
            return "tool_calls"
        return "length" if self.asked.counted else "stop"

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.kind == "chat" else "text_completion"

    def _chunk(self, body: Json, finish_reason: str | None) -> Json:
        return self._object(self._chunk_name, [self._choice(body, finish_reason)])

    def _choice(self, body: Json, finish_reason: str | None) -> Json:
        return {"index": 0, **body, "logprobs": None, "finish_reason": finish_reason}

    def _object(self, name: str, choices: list[Json]) -> Json:
        prefix = "chatcmpl" if self.kind == "chat" else "cmpl"
        return {
            "id": f"{prefix}-{self.id}",
            "object": name,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


@dataclass
class GenerateAnswer:
    """Of /generate. Each chunk of a stream has the whole text so far; ``e2e_latency`` is virtual."""

    asked: Asked
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def whole(self) -> Json:
        return self._so_far(len(self.asked.request.reply))

    def chunk(self, sent: int, produced: int) -> list[Json]:
        return [self._so_far(produced)]

    def closing(self) -> list[Json]:
        return []

    def _so_far(self, produced: int) -> Json:
        request = self.asked.request
        reply = list(request.reply[:produced])
        meta: Json = {
            "id": self.id,
            "finish_reason": None,
            "prompt_tokens": len(request.prompt),
            "completion_tokens": produced,
            "cached_tokens": request.cached_tokens,
        }
        if produced == len(request.reply):
            reason = {"type": "length", "length": produced} if self.asked.counted else {"type": "stop"}
            meta |= {"finish_reason": reason, "e2e_latency": request.duration_s}
        text = decode(reply[: whole_characters(request.reply, produced)])
        return {"text": text, "output_ids": reply, "meta_info": meta}
