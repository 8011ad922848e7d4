"""Whether the bfcl-eval at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coresched_engine.places import Place
from coresched_harness.compatibility import Fit, uncalled

from coresched.errors import InputError

TESTED_VERSION = "2026.3.23"

_GENERATION = "bfcl_eval._llm_response_generation"
_HANDLER = "bfcl_eval.model_handler.base_handler"

PLACES = (
    Place("bfcl_eval.__main__.generation_main", ("args",)),
    Place(f"{_GENERATION}.build_handler", ("model_name", "temperature")),
    Place(
        f"{_GENERATION}.multi_threaded_inference",
        ("handler", "test_case", "include_input_log", "exclude_state_log"),
    ),
    Place(
        f"{_HANDLER}.execute_multi_turn_func_call", ("func_call_list", "initial_config", "involved_classes")
    ),
    Place(f"{_HANDLER}.BaseHandler._query_FC", ("self", "inference_data")),
    Place(f"{_HANDLER}.BaseHandler._query_prompting", ("self", "inference_data")),
)

_CALLS = {
    f"{_GENERATION}.generate_results": ("build_handler", "multi_threaded_inference"),
    f"{_HANDLER}.BaseHandler.inference_multi_turn_FC": ("_query_FC", "execute_multi_turn_func_call"),
    f"{_HANDLER}.BaseHandler.inference_multi_turn_prompting": (
        "_query_prompting",
        "execute_multi_turn_func_call",
    ),
    f"{_HANDLER}.BaseHandler.inference_single_turn_FC": ("_query_FC",),
    f"{_HANDLER}.BaseHandler.inference_single_turn_prompting": ("_query_prompting",),
}
"""Functions that must call the places by these names, or replacing the names has no effect."""


def load_command_line() -> Any:
    """The module `bfcl_eval.__main__`. Raises InputError where it cannot be had."""
    try:
        return import_module("bfcl_eval.__main__")
    except ImportError as error:
        raise InputError(
            f"bfcl-eval cannot be imported ({error}); install it with: pip install 'coresched[bfcl]'"
        ) from None


def missing() -> list[str]:
    """What this adapter needs and the bfcl-eval at hand lacks, a phrase each."""
    found = [reason for place in PLACES for reason in place.differences()]
    return found + list(uncalled(_CALLS))


FIT = Fit("bfcl-eval", TESTED_VERSION, f"pip install bfcl-eval=={TESTED_VERSION}", missing)
