"""What each endpoint answers: whole, and as the chunks of a stream."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from coresched.lab.worker.asked import Asked
from coresched.lab.worker.tokens import decode

Json = dict[str, Any]


class Answer(Protocol):
    """How one request is answered."""

    def whole(self) -> Json:
        """The answer without streaming, once the reply is done."""

    def chunk(self, sent: int, produced: int) -> list[Json]:
        """The reply's tokens from ``sent`` to ``produced``, in the first chunk from 0."""

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
        text = decode(self.asked.request.reply)
        body: Json = {"message": {"role": "assistant", "content": text}}
        name = "chat.completion"
        if self.kind == "text":
            body, name = self._text(0, len(self.asked.request.reply)), "text_completion"
        return self._object(name, [self._choice(body, self._finish_reason)]) | {"usage": usage(self.asked)}

    def chunk(self, sent: int, produced: int) -> list[Json]:
        if self.kind == "text":
            return [self._chunk(self._text(sent, produced), None)]
        text = decode(self.asked.request.reply[sent:produced])
        delta = {"content": text} if sent else {"role": "assistant", "content": text}
        return [self._chunk({"delta": delta}, None)]

    def closing(self) -> list[Json]:
        last: Json = {"text": ""} if self.kind == "text" else {"delta": {}}
        chunks = [self._chunk(last, self._finish_reason)]
        if self.asked.include_usage:
            chunks.append(self._object(self._chunk_name, []) | {"usage": usage(self.asked)})
        return chunks

    def _text(self, first: int, end: int) -> Json:
        tokens = self.asked.request.reply[first:end]
        return {"text": decode(tokens)} | ({"token_ids": list(tokens)} if self.asked.token_ids else {})

    @property
    def _finish_reason(self) -> str:
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
        return {"text": decode(reply), "output_ids": reply, "meta_info": meta}
