"""What a coordinator may be started with, checked before Ray is asked for an actor."""

import re
from pathlib import Path
from typing import Any

import pytest
from coresched_ray.coordinator import checked_terms


def test_names_weigh_one_each_and_the_journal_is_where_the_caller_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    terms = checked_terms("journal.sqlite3", iter(["a", "b"]), "lbch", 1.25, 0)
    assert terms.workers == {"a": 1.0, "b": 1.0}
    assert terms.journal == str(tmp_path / "journal.sqlite3")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": "http://10.0.0.5:30000"}, "workers must be names or a mapping to weights"),
        ({"workers": None}, "workers must be names or a mapping to weights"),
        ({"workers": ["a", "a"]}, "a worker must be added once only, got 'a' again"),
        ({"workers": [""]}, "worker must not be empty"),
        ({"workers": {"a": "x"}}, "weight of 'a' must be an int or a float, got 'x'"),
        ({"workers": {"a": 0}}, "weight of 'a' must be above 0, got 0"),
        ({"load_bound": 0.5}, "load_bound must be at least 1, got 0.5"),
        ({"slack": -1}, "slack must be at least 0, got -1"),
        ({"router": "ring"}, "router must be one of lbch, sticky-bounded, got 'ring'"),
        ({"journal": 3}, "journal must be the name of a file or None, got 3"),
        ({"journal": b"/tmp/x"}, "journal must be the name of a file or None, got b'/tmp/x'"),
        ({"journal": "a\0b"}, "journal must be the name of a file or None, got 'a\\x00b'"),
        ({"journal": "/"}, "journal must be the name of a file or None, got '/'"),
    ],
)
def test_a_term_that_cannot_be_is_named(given: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {
        "journal": None,
        "workers": ["a"],
        "router": "lbch",
        "load_bound": 1.25,
        "slack": 0,
    }
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(said)):
        checked_terms(**usual | given)
