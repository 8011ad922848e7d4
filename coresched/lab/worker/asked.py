"""What a client asks for: the body of each endpoint, read into a request to the worker."""

from array import array
from dataclasses import dataclass

import msgspec

from coresched.lab.worker.fields import Fields, shown
from coresched.lab.worker.messages import read_chat
from coresched.lab.worker.refusal import RefusedError
from coresched.lab.worker.replies import LONGEST
from coresched.lab.worker.requests import LiveRequest, make_request
from coresched.lab.worker.script import Script, ScriptedReply
from coresched.lab.worker.tokens import encode, render_chat


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
    scripted: ScriptedReply | None = None
    """What the request's reply says; None for words."""


@dataclass(frozen=True)
class Endpoints:
    """Bodies to requests, for a worker that serves ``model`` and holds ``largest_request`` tokens of one.

    Each method raises RefusedError; sampling parameters that change only which text comes are not read.
    """

    model: str
    largest_request: int
    script: Script | None = None

    def chat(self, body: Fields, label: str | None) -> Asked:
        """POST /v1/chat/completions."""
        self._check_openai(body)
        chat = read_chat(body)
        tools = body.raw("tools")
        prompt = render_chat(chat.messages, msgspec.json.encode(tools).decode() if tools else "")
        given = "max_completion_tokens"
        if body.raw(given) is None:
            given = "max_tokens"
        scripted = self.script.reply(chat.task, chat.replies) if self.script else None
        return self._asked(body, body, "messages", prompt, given, label, scripted, message=True)

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
        scripted = self._scripted_text(prompt, "prompt")
        return self._asked(body, body, "prompt", encode(prompt), "max_tokens", label, scripted)

    def generate(self, body: Fields, label: str | None) -> Asked:
        """POST /generate, as SGLang has it."""
        parameters = body.object("sampling_params")
        parameters.require_one("n")
        ids = body.raw("input_ids")
        if (body.raw("text") is None) == (ids is None):
            raise RefusedError(
                "text or input_ids must be there, and not both; give one of them", field="text"
            )
        scripted = None
        if ids is None:
            text = body.text("text") or ""
            field, prompt = "text", encode(text)
            scripted = self._scripted_text(text, "text")
        else:
            field, prompt = "input_ids", array("q", body.token_ids("input_ids"))
        return self._asked(body, parameters, field, prompt, "max_new_tokens", label, scripted)

    def _scripted_text(self, prompt: str, field: str) -> ScriptedReply | None:
        """The first reply, for a prompt of text does not tell how many there were."""
        scripted = self.script.reply(prompt, 0) if self.script else None
        if scripted is not None and scripted.calls:
            raise RefusedError(
                f"{field} gets {scripted}, which has tool calls; ask for it at /v1/chat/completions",
                field=field,
            )
        return scripted

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
        scripted: ScriptedReply | None = None,
        *,
        message: bool = False,
    ) -> Asked:
        if not prompt:
            raise RefusedError(f"{prompt_field} is empty; it must have a token", field=prompt_field)
        length = parameters.integer(length_field, 1)
        seed = parameters.integer("seed", -(2**63)) or 0
        stream = body.flag("stream")
        include_usage = body.object("stream_options").flag("include_usage")
        reply = None
        if scripted is not None:
            reply = scripted.tokens
            needed, name = len(reply), parameters.name(length_field)
            if length is not None and length < needed:
                raise RefusedError(
                    f"{name} is {length}, but {scripted} has {needed} tokens, and half a reply is none; "
                    f"give at least {needed}, or no {name}",
                    field=name,
                )
            longest, said = needed, f"{scripted} of {needed}"
        elif length is not None:
            longest, said = length, f"{parameters.name(length_field)} {length}"
        else:
            longest = LONGEST
            said = f"a reply of up to {LONGEST} (no {parameters.name(length_field)} was given)"
        if len(prompt) + longest > self.largest_request:
            raise RefusedError(
                f"{prompt_field} has {len(prompt)} tokens, and with {said} it needs more than the "
                f"{self.largest_request} tokens that the KV pool holds; shorten one of them",
                field=prompt_field,
                code="context_length_exceeded",
            )
        request = make_request(
            prompt,
            label=label,
            output_tokens=length,
            seed=seed,
            message=message,
            streamed=stream,
            reply=reply,
        )
        return Asked(
            request,
            stream,
            include_usage,
            counted=length is not None and scripted is None,
            token_ids=body.flag("return_token_ids"),
            scripted=scripted,
        )
