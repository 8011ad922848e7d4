"""When inspect is gated, and what is wrong with a gate for it. Here without inspect."""

import pytest
from coresched_inspect.activation import asked_for, gate_of_evals

from coresched.errors import InputError


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAMPLE_CONCURRENCY", "ENVIRONMENT_CONCURRENCY", "SERVICE", "BATCH", "WORKERS"):
        monkeypatch.delenv(f"CORESCHED_{name}", raising=False)


def test_nothing_is_gated_unless_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESCHED_SAMPLE_CONCURRENCY", " ")
    assert not asked_for()
    assert gate_of_evals() is None
    monkeypatch.setenv("CORESCHED_ENVIRONMENT_CONCURRENCY", "3")
    assert asked_for()
    with pytest.raises(
        InputError, match="CORESCHED_SAMPLE_CONCURRENCY must be set with CORESCHED_ENVIRONMENT"
    ):
        gate_of_evals()


def test_workers_are_a_matter_of_the_models_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESCHED_SAMPLE_CONCURRENCY", "9")
    monkeypatch.setenv("CORESCHED_WORKERS", "http://a,http://b")
    assert asked_for()
    with pytest.raises(InputError, match="CORESCHED_WORKERS is set, but inspect sends all requests to the"):
        gate_of_evals()


def test_a_variable_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESCHED_SAMPLE_CONCURRENCY", "many")
    with pytest.raises(InputError, match="CORESCHED_SAMPLE_CONCURRENCY must be a whole number of at least 1"):
        gate_of_evals()
