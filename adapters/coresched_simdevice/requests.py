"""Requests that the simulated device cannot answer are refused before they are queued."""

from collections.abc import Sequence
from typing import Any, Final

from coresched.capacity.fields import shown

GRAMMARS: Final = ("json_schema", "regex", "ebnf", "structural_tag")
MEDIA: Final = ("image_data", "video_data", "audio_data", "input_embeds", "positional_embed_overrides")
OUTPUTS: Final = ("return_hidden_states", "return_routed_experts", "return_sampling_mask")


def before_validation(manager: Any, obj: Any, input_ids: Any, *args: Any, **kwargs: Any) -> None:
    """Before ``TokenizerManager._validate_one_request``, which each request of a batch passes.

    Raises ValueError, to clients a status of 400.
    """
    if problem := refusal(obj):
        raise ValueError(f"the simulated device of coresched computes nothing, so {problem}")
    resumes = bool(getattr(obj, "session_params", None))
    if problem := prompt_refusal(input_ids, manager.model_config.vocab_size, may_be_empty=resumes):
        raise ValueError(problem)


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
    if (parameters.get("beam_width") or 1) > 1:
        return f"there are no logits to search; leave beam_width ({parameters['beam_width']}) out"
    if getattr(request, "custom_logit_processor", None):
        return "there are no logits; leave custom_logit_processor out"
    return None


def prompt_refusal(input_ids: Sequence[int], vocabulary: int, *, may_be_empty: bool = False) -> str | None:
    """Why a prompt cannot be served; None if it can.

    SGLang passes on any id, and on a server of one rank looks up an embedding that does not exist.
    A prompt ``may_be_empty`` where a session has what goes before.
    """
    if not len(input_ids):
        return None if may_be_empty else "the prompt has no tokens; send at least one"
    lowest, highest = min(input_ids), max(input_ids)
    if lowest >= 0 and highest < vocabulary:
        return None
    wrong = lowest if lowest < 0 else highest
    return (
        f"input_ids has {shown(wrong)}, which is no token of the model; give ids from 0 to {vocabulary - 1:,}"
    )
