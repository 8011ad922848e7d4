"""Labels of attempts, and the headers that carry them."""

import pytest
from coresched_inspect.samples import label_of
from hypothesis import given
from hypothesis import strategies as st

from coresched.client.label import check_header_text


def test_a_label_names_task_sample_epoch_attempt_and_run() -> None:
    assert label_of("swe_bench", "django-11", 2, 1, "nXk3") == "swe_bench/django-11/epoch-2/attempt-1/nXk3"


@pytest.mark.parametrize("other", [(2, 1, "u"), (1, 2, "u"), (1, 1, "v")])
def test_epochs_attempts_and_runs_have_labels_of_their_own(other: tuple[int, int, str]) -> None:
    assert label_of("t", 7, 1, 1, "u") != label_of("t", 7, *other)


@given(st.text(), st.one_of(st.text(), st.integers()))
def test_whatever_a_sample_is_called_a_header_can_carry_its_label(task: str, sample: str | int) -> None:
    label = label_of(task, sample, 1, 1, "nXk3WVsjEikoqmztcv9nnA")
    assert len(label) <= 512
    assert check_header_text(label, "a sample id") == label
