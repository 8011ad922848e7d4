"""What a client asks for: the body of each endpoint, read into a request to the worker."""

from array import array
from dataclasses import dataclass

import msgspec

from coresched.lab.worker.fields import Fields, shown
from coresched.lab.worker.refusal import RefusedError
from coresched.lab.worker.replies import LONGEST
from coresched.lab.worker.requests import LiveRequest, make_request
from coresched.lab.worker.tokens import ROLES, encode, render_chat


@dataclass(frozen=True)
class Asked:
    """A request, and how its answer is to be written."""

    request: LiveRequest
    stream: bool
    include_usage: bool
    counted: bool
    """Whether the client gave the reply's length, so that it ends there rather than by itself."""
    token_ids: bool = False
    """Whether a text completion has the ids of the reply's tokens beside their text."""


@dataclass(frozen=True)
class Endpoints:
    """Bodies to requests, for a worker that serves ``model`` and holds ``largest_request`` tokens of one.

    Each method raises RefusedError; sampling parameters that change only which text comes are not read.
    """

    model: str
    largest_request: int

    def chat(self, body: Fields, label: str | None) -> Asked:
        """POST /v1/chat/completions."""
        self._check_openai(body)
        messages = [
            _message(Fields(message, f"messages[{place}]"))
            for place, message in enumerate(body.items("messages", "a list of at least one message"))
        ]
        tools = body.raw("tools")
        prompt = render_chat(messages, msgspec.json.encode(tools).decode() if tools else "")
        given = "max_completion_tokens"
        if body.raw(given) is None:
            given = "max_tokens"
        return self._asked(body, body, "messages", prompt, given, label, message=True)

    def completion(self, body: Fields, label: str | None) -> Asked:
        """POST /v1/completions."""
        self._check_openai(body)
        prompt = body.raw("prompt")
        if not isinstance(prompt, str):
            if not (isinstance(prompt, list) and prompt and type(prompt[0]) is int):
                body.refuse("prompt", "a string or a list of token ids")
            return self._asked(
                body, body, "prompt", array("q", body.token_ids("prompt")), "max_tokens", label
            )
        return self._asked(body, body, "prompt", encode(prompt), "max_tokens", label)

    def generate(self, body: Fields, label: str | None) -> Asked:
        """POST /generate, as SGLang has it."""
        parameters = body.object("sampling_params")
        parameters.require_one("n")
        ids = body.raw("input_ids")
        if (body.raw("text") is None) == (ids is None):
            raise RefusedError(
                "text or input_ids must be there, and not both; give one of them", field="text"
            )
        if ids is None:
            field, prompt = "text", encode(body.text("text") or "")
        else:
            field, prompt = "input_ids", array("q", body.token_ids("input_ids"))
        return self._asked(body, parameters, field, prompt, "max_new_tokens", label)

    def _check_openai(self, body: Fields) -> None:
        model = body.text("model")
        if model is not None and model != self.model:
            raise RefusedError(
                f"model is {shown(model)}, which is not served here; use {self.model!r}",
                field="model",
                status=404,
                code="model_not_found",
            )
        body.require_one("n")

    def _asked(
        self,
        body: Fields,
        parameters: Fields,
        prompt_field: str,
        prompt: "array[int]",
        length_field: str,
        label: str | None,
        *,
        message: bool = False,
    ) -> Asked:
        if not prompt:
            raise RefusedError(f"{prompt_field} is empty; it must have a token", field=prompt_field)
        length = parameters.integer(length_field, 1)
        seed = parameters.integer("seed", -(2**63)) or 0
        stream = body.flag("stream")
        include_usage = body.object("stream_options").flag("include_usage")
        longest = LONGEST if length is None else length
        if len(prompt) + longest > self.largest_request:
            reply = (
                f"a reply of up to {LONGEST} (no {parameters.name(length_field)} was given)"
                if length is None
                else f"{parameters.name(length_field)} {length}"
            )
            raise RefusedError(
                f"{prompt_field} has {len(prompt)} tokens, and with {reply} it needs more than the "
                f"{self.largest_request} tokens that the KV pool holds; shorten one of them",
                field=prompt_field,
                code="context_length_exceeded",
            )
        request = make_request(
            prompt, label=label, output_tokens=length, seed=seed, message=message, streamed=stream
        )
        return Asked(
            request,
            stream,
            include_usage,
            counted=length is not None,
            token_ids=body.flag("return_token_ids"),
        )


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
    calls = message.raw("tool_calls")
    if calls:
        texts.append(msgspec.json.encode(calls).decode())
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
