"""The usage object of a model API's answer, in the three shapes that harnesses record."""

import msgspec

from coresched.trajectory.importers.recording import Call
from coresched.trajectory.refusal import MAX_TOKENS


class _Details(msgspec.Struct):
    reasoning_tokens: float | None = None


class Usage(msgspec.Struct):
    """OpenAI's chat completions and responses, and Anthropic's messages.

    Anthropic alone leaves cached tokens out of `input_tokens` and states them beside it.
    """

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_creation_input_tokens: float | None = None
    cache_read_input_tokens: float | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None

    def fill(self, call: Call) -> None:
        """Write the provider's counts into a call; a count of 0 in the prompt means that there is none."""
        prompt = tokens(self.prompt_tokens)
        if prompt is None and (bare := tokens(self.input_tokens)) is not None:
            cached = (tokens(self.cache_creation_input_tokens) or 0) + (
                tokens(self.cache_read_input_tokens) or 0
            )
            prompt = bare + cached
        output = tokens(self.output_tokens if self.completion_tokens is None else self.completion_tokens)
        if not prompt or output is None:
            return
        call.prompt_tokens, call.output_tokens = prompt, output
        details = self.completion_tokens_details or self.output_tokens_details
        if details is not None:
            call.reasoning_tokens = min(tokens(details.reasoning_tokens) or 0, output)


def tokens(value: float | None) -> int | None:
    """A count as an integer; None where it is missing, negative, fractional or beyond any context."""
    if value is None or not 0 <= value <= MAX_TOKENS or value != int(value):
        return None
    return int(value)
