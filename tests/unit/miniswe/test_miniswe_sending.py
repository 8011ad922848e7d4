"""What a request of mini-swe-agent takes along; without the harness."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_miniswe.inner import class_name, inner_of, subclass
from coresched_miniswe.sending import address, call_arguments, sends_headers

from coresched.errors import InputError

LABEL = {"x-smg-routing-key": "t", "x-session-id": "t"}


def turn(worker: str | None = None) -> Any:
    return SimpleNamespace(headers=LABEL, worker=worker)


def test_the_label_joins_the_headers_of_the_configuration_and_of_the_call() -> None:
    found = call_arguments(turn(), {"extra_headers": {"a": "1"}, "temperature": 0}, {"max_tokens": 5})
    assert found == {"max_tokens": 5, "extra_headers": {"a": "1", **LABEL}, "max_retries": 0}
    found = call_arguments(turn(), {"extra_headers": {"a": "1"}}, {"extra_headers": {"b": "2"}})
    assert found["extra_headers"] == {"b": "2", **LABEL}  # the call's replace the configuration's, as ever


@pytest.mark.parametrize("setting", ["max_retries", "num_retries"])
def test_retries_that_the_configuration_asks_for_stay(setting: str) -> None:
    assert "max_retries" not in call_arguments(turn(), {setting: 3}, {})


def test_a_turn_s_worker_takes_the_place_of_the_configured_host() -> None:
    found = call_arguments(turn("http://w1:3/"), {"api_base": "http://workers/openai/v1"}, {})
    assert found["api_base"] == "http://w1:3/openai/v1"
    assert address("http://w1:3", None) == "http://w1:3/v1"
    assert address("http://w1:3", "http://workers") == "http://w1:3"
    with pytest.raises(InputError, match="worker 'w1' must be a URL"):
        address("w1", None)


class Face:
    """The documentation of the face."""


class Inner:
    pass


def test_the_class_behind_a_gated_one() -> None:
    made = subclass(Face, Inner)
    assert (made.__module__, made.__name__, made.__doc__) == ("coresched_miniswe", "Face", Face.__doc__)
    assert made.__mro__[1:3] == (Face, Inner)
    assert inner_of(Inner, Face, {}.__getitem__, "f") is Inner
    assert inner_of("name", Face, {"name": Inner}.__getitem__, "f") is Inner
    assert (class_name("docker"), class_name(Inner)) == ("docker", f"{__name__}.Inner")
    for wrong, told in ((7, "f must be a name"), (made, "f must name the class behind Face")):
        with pytest.raises(InputError, match=told):
            inner_of(wrong, Face, {}.__getitem__, "f")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="f must name a class, got 'x'"):
        inner_of("x", Face, {"x": len}.__getitem__, "f")  # type: ignore[dict-item]


def test_only_litellm_s_classes_take_headers() -> None:
    through_litellm = type("LitellmModel", (), {"__module__": "minisweagent.models.litellm_model"})
    assert sends_headers(subclass(Face, through_litellm))
    assert not sends_headers(Inner)
