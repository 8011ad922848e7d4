"""What `request_router_kwargs` may hold, and where a label is looked for."""

import pickle
import re
from types import SimpleNamespace
from typing import Any

import pytest
from coresched_ray.labels import label_of
from coresched_ray.options import RouterOptions, checked_options


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"load_bond": 2}, "request_router_kwargs must be among load_bound, virtual_nodes, router"),
        ({"load_bound": 0.5}, "load_bound must be at least 1, got 0.5"),
        ({"load_bound": "2"}, "load_bound"),
        ({"virtual_nodes": 0}, "virtual_nodes"),
        ({"router": "ring"}, "router must be one of lbch, sticky-bounded, got 'ring'"),
        ({"router": "sticky-bounded", "virtual_nodes": 64}, "virtual_nodes is 64"),
        ({"label_header": ""}, "label_header must be a name or null, got ''"),
        ({"label_argument": 3}, "label_argument must be a name or null, got 3"),
    ],
)
def test_an_option_that_cannot_be_is_named_in_one_line(given: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(text)) as caught:
        checked_options(given)
    assert "\n" not in str(caught.value)


def asked(
    *args: Any, headers: dict[str, str] | None = None, session: str = "", **kwargs: Any
) -> SimpleNamespace:
    if headers is not None:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        args = (pickle.dumps(SimpleNamespace(asgi_scope={"headers": pairs})), *args)
    metadata = SimpleNamespace(session_id=session, is_http_request=headers is not None)
    return SimpleNamespace(args=list(args), kwargs=kwargs, metadata=metadata)


def test_the_argument_comes_before_the_header_and_the_header_before_the_session() -> None:
    options = RouterOptions(label_argument="trajectory")
    request = asked(headers={"X-SMG-Routing-Key": " h "}, session="s", trajectory="a")
    assert label_of(request, options) == "a"
    assert label_of(request, RouterOptions()) == "h"
    assert label_of(request, RouterOptions(label_header="x-label")) == "s"
    assert label_of(request, RouterOptions(label_header=None)) == "s"


def test_headers_of_an_argument_of_a_handle_call_count() -> None:
    raw = SimpleNamespace(headers={"x-smg-routing-key": "h"})
    assert label_of(asked("body", raw), RouterOptions()) == "h"
    assert label_of(asked("body", request=raw), RouterOptions()) == "h"


def test_a_request_without_any_of_them_has_no_label() -> None:
    assert label_of(asked("body", 3), RouterOptions(label_argument="trajectory")) is None
    assert label_of(asked(headers={"accept": "x-smg-routing-key"}), RouterOptions()) is None


def test_what_is_no_label_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"^header x-smg-routing-key "):
        label_of(asked(headers={"x-smg-routing-key": "k" * 600}), RouterOptions())
    with pytest.raises(TypeError, match=r"^argument 'trajectory' "):
        label_of(asked(trajectory=7), RouterOptions(label_argument="trajectory"))
