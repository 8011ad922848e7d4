"""Requests that the simulated device cannot answer are refused before they are queued."""

from typing import Any, Final

GRAMMARS: Final = ("json_schema", "regex", "ebnf", "structural_tag")
MEDIA: Final = ("image_data", "video_data", "audio_data", "input_embeds", "positional_embed_overrides")
OUTPUTS: Final = ("return_hidden_states", "return_routed_experts", "return_sampling_mask")


def before_validation(manager: Any, request: Any, input_ids: Any, *args: Any, **kwargs: Any) -> None:
    """Before ``TokenizerManager._validate_one_request``. Raises ValueError, to clients a status of 400."""
    if problem := refusal(request):
        raise ValueError(f"the simulated device of coresched computes nothing, so {problem}")


def refusal(request: Any) -> str | None:
    """Why a ``GenerateReqInput`` cannot be answered, naming the field and the fix; None if it can."""
    if getattr(request, "return_logprob", False):
        return "there are no log probabilities; leave logprobs (return_logprob) out"
    for name in OUTPUTS:
        if getattr(request, name, False):
            return f"{name} has nothing to return; leave it out"
    for name in MEDIA:
        if getattr(request, name, None) is not None:
            return f"{name} cannot be encoded; send text or token ids"
    parameters = getattr(request, "sampling_params", None) or {}
    for name in GRAMMARS:
        if parameters.get(name):
            return f"no token can follow a grammar; leave {name} (a response_format, a forced tool) out"
    if getattr(request, "custom_logit_processor", None):
        return "there are no logits; leave custom_logit_processor out"
    return None
