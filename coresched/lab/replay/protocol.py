"""The two ways to ask an engine for an exact number of tokens after exact prompt tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from coresched.lab.replay.failure import EndpointError, ReplayError

ProtocolName = Literal["sglang", "openai"]


@dataclass(frozen=True)
class Answer:
    """One reply as the engine reports it."""

    reply: list[int]
    """Its token ids."""
    prompt_tokens: int
    cached_tokens: int | None
    """Prompt tokens that were in the cache; None where the engine does not say."""
    first_token_s: float | None
    """From the request to the first token on the engine's clock; None where the engine does not say."""


def check_counts(answer: Answer, prompt_tokens: int, output_tokens: int, where: str) -> None:
    """Raises ReplayError for other numbers of tokens than recorded, which would be another workload."""
    if answer.prompt_tokens != prompt_tokens:
        raise ReplayError(
            f"{where} counted {answer.prompt_tokens} prompt tokens where {prompt_tokens} were sent; it must "
            "take token ids as they are"
        )
    if len(answer.reply) != output_tokens:
        raise ReplayError(
            f"{where} generated {len(answer.reply)} tokens where {output_tokens} were asked for; it must "
            "honour ignore_eos"
        )


@dataclass(frozen=True)
class Protocol:
    """Where to post, the body of a request, and how to read its answer.

    ``body(ids, label, output_tokens)`` takes the prompt's ids as JSON without brackets, and None for no
    label. ``read`` raises EndpointError for what is no answer.
    """

    path: str
    body: Callable[[bytes, str | None, int], bytes]
    read: Callable[[bytes], Answer]


def sglang() -> Protocol:
    """SGLang's own ``POST /generate``; the label is in the body, for that endpoint reads no header."""
    return Protocol("/generate", _generate_body, _read_generate)


def openai(model: str) -> Protocol:
    """OpenAI's ``POST /v1/completions`` with the extensions that vLLM and SGLang share."""
    name = msgspec.json.encode(model)

    def body(ids: bytes, label: str | None, output_tokens: int) -> bytes:
        return (
            b'{"model":%b,"max_tokens":%d,"min_tokens":%d,"ignore_eos":true,"temperature":0,'
            b'"return_token_ids":true,"prompt":[%b]}' % (name, output_tokens, output_tokens, ids)
        )

    return Protocol("/v1/completions", body, _read_completion)


def _generate_body(ids: bytes, label: str | None, output_tokens: int) -> bytes:
    # SGLang takes null as no key.
    return (
        b'{"routing_key":%b,"sampling_params":{"max_new_tokens":%d,"ignore_eos":true,"temperature":0},'
        b'"input_ids":[%b]}' % (msgspec.json.encode(label), output_tokens, ids)
    )


class _GenerateMeta(msgspec.Struct):
    prompt_tokens: int
    cached_tokens: int | None = None
    first_token_latency: float | None = None
    finish_reason: Any = None


class _Generated(msgspec.Struct):
    output_ids: list[int]
    meta_info: _GenerateMeta


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: _PromptDetails | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage


_decode_generated = msgspec.json.Decoder(_Generated).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


def _read_generate(content: bytes) -> Answer:
    try:
        answer = _decode_generated(content)
    except msgspec.DecodeError as error:
        raise EndpointError(f"answered with what is no answer of /generate: {error}") from None
    meta = answer.meta_info
    if isinstance(meta.finish_reason, dict) and meta.finish_reason.get("type") == "abort":
        raise EndpointError(f"aborted the request: {meta.finish_reason.get('message')}", may_retry=True)
    return Answer(answer.output_ids, meta.prompt_tokens, meta.cached_tokens, meta.first_token_latency)


def _read_completion(content: bytes) -> Answer:
    try:
        answer = _decode_completion(content)
    except msgspec.DecodeError as error:
        raise EndpointError(f"answered with what is no answer of /v1/completions: {error}") from None
    reply = answer.choices[0].token_ids if answer.choices else None
    if reply is None:
        raise EndpointError(
            "answered without choices[0].token_ids, so the next prompt could not hold the reply; it needs an "
            "engine that knows return_token_ids, or --protocol sglang"
        )
    details = answer.usage.prompt_tokens_details
    return Answer(reply, answer.usage.prompt_tokens, None if details is None else details.cached_tokens, None)
