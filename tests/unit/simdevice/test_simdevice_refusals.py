"""Flags and requests for which the simulated device has no answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_simdevice import flags, requests


def server(**changes: Any) -> SimpleNamespace:
    plain = {"device": "cpu", "disaggregation_mode": "null", "pp_size": 1, "dcp_size": None}
    return SimpleNamespace(**(plain | changes))


def test_a_plain_server_is_accepted() -> None:
    assert flags.refusal(server(tp_size=4, dp_size=2, lora_paths=None)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, "--device is cuda"),
        ({"disaggregation_mode": "prefill"}, "--disaggregation-mode is prefill"),
        ({"pp_size": 2}, "--pp-size is 2; pipeline stages"),
        ({"attn_dp_size": 4}, "--attn-dp-size is 4; attention data parallelism"),
        ({"speculative_algorithm": "EAGLE"}, "--speculative-algorithm is given, but drafts"),
        ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache is given"),
        ({"lora_paths": ["a"]}, "--lora-paths is given"),
    ],
)
def test_a_flag_without_an_answer_is_named(change: dict[str, Any], words: str) -> None:
    problem = flags.refusal(server(**change))
    assert problem is not None
    assert problem.startswith(words)
    assert problem.endswith("cpu" if "device" in change else "leave it out")


MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=1000))


def test_a_plain_request_is_accepted() -> None:
    request = SimpleNamespace(return_logprob=False, image_data=None, sampling_params={"max_new_tokens": 4})
    requests.before_validation(MANAGER, request, [0, 1, 999])


@pytest.mark.parametrize("token", [-5, -1, 1000, 10**9, 2**31, 2**63, 10**40])
def test_a_token_that_the_model_does_not_have_is_refused(token: int) -> None:
    request = SimpleNamespace(sampling_params={})
    with pytest.raises(ValueError, match=r"^input_ids has .*; give ids from 0 to 999$") as refused:
        requests.before_validation(MANAGER, request, [1, token, 2])
    assert len(str(refused.value)) < 200


def test_an_empty_prompt_is_refused_unless_a_session_has_one() -> None:
    with pytest.raises(ValueError, match="the prompt has no tokens"):
        requests.before_validation(MANAGER, SimpleNamespace(sampling_params={}), [])
    resumed = SimpleNamespace(sampling_params={}, session_params={"id": "s"})
    requests.before_validation(MANAGER, resumed, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"return_logprob": True}, "no log probabilities"),
        ({"return_hidden_states": True}, "return_hidden_states"),
        ({"image_data": ["a.png"]}, "image_data"),
        ({"sampling_params": {"json_schema": "{}"}}, "json_schema"),
        ({"sampling_params": {"regex": "a+"}}, "regex"),
        ({"sampling_params": {"beam_width": 2}}, "beam_width"),
        ({"custom_logit_processor": "x"}, "custom_logit_processor"),
    ],
)
def test_a_request_without_an_answer_is_refused(change: dict[str, Any], words: str) -> None:
    request = SimpleNamespace(**({"sampling_params": {}} | change))
    with pytest.raises(ValueError, match=words):
        requests.before_validation(MANAGER, request, [1, 2])
