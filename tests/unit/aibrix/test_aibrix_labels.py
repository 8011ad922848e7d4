"""Where the label of a request comes from, and the header that a client can send for it."""

from __future__ import annotations

import pytest
from coresched_aibrix.labels import request_label, traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_the_attribute_is_before_the_trace_and_the_trace_before_the_request() -> None:
    parent = f"00-{TRACE}-00f067aa0ba902b7-01"
    assert request_label({"label": "t"}, "label", parent, "r") == ("t", "attribute")
    assert request_label({"other": "t"}, "label", parent, "r") == (TRACE, "trace")
    assert request_label({}, "label", None, "r") == ("r", "request")


@pytest.mark.parametrize(
    "parent",
    [
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7-01-x",
        "",
    ],
)
def test_what_aibrix_takes_for_no_trace_is_none(parent: str) -> None:
    assert request_label({}, "label", parent, "r") == ("r", "request")


def test_all_turns_of_a_trajectory_are_one_trace() -> None:
    first, second, other = traceparent("traj-1"), traceparent("traj-1"), traceparent("traj-2")
    assert first != second
    assert request_label({}, "label", first, "r") == request_label({}, "label", second, "s")
    assert request_label({}, "label", first, "r") != request_label({}, "label", other, "r")


def test_an_attribute_that_is_no_label_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"spec\.policyContext\.attributes\['label'\] must not be empty"):
        request_label({"label": ""}, "label", None, "r")
