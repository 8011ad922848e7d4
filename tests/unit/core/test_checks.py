"""The argument checks: what passes comes back, what fails is named with its value."""

import enum
import math

import pytest

from coresched.core.checks import check_count, check_finite, check_label, check_positive

FITTING_LABELS = ["a", "traj-17", "x" * 512, "é" * 256, "\U0001f600" * 128, "nul\0inside", " ", "日本"]


@pytest.mark.parametrize("label", FITTING_LABELS)
def test_a_label_of_up_to_512_utf8_bytes_comes_back(label: str) -> None:
    assert check_label(label, "label") == label


@pytest.mark.parametrize("label", ["x" * 513, "é" * 257, "é" * 256 + "x", "\U0001f600" * 129])
def test_a_label_over_512_utf8_bytes_is_refused_with_its_size(label: str) -> None:
    with pytest.raises(
        ValueError, match=f"^label must be at most 512 bytes.*got {len(label.encode())} bytes"
    ):
        check_label(label, "label")


def test_an_empty_label_and_a_lone_surrogate_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^label must not be empty"):
        check_label("", "label")
    with pytest.raises(
        ValueError, match=r"^label must be text that UTF-8 can encode, got 'a\\ud800'"
    ) as raised:
        check_label("a\ud800", "label")
    assert type(raised.value) is ValueError


@pytest.mark.parametrize("value", [None, b"label", 3, 1.5, ["a"]])
def test_a_label_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"^worker must be a str, got .* of type"):
        check_label(value, "worker")


def test_a_str_subclass_comes_back_as_the_plain_text_it_holds() -> None:
    class Colour(str, enum.Enum):
        RED = "red"

    label = check_label(Colour.RED, "label")
    assert (label, type(label)) == ("red", str)


@pytest.mark.parametrize("value", [0, -3, 2.5, -1e308, 5e-324, 10**300])
def test_finite_numbers_come_back_as_floats(value: float) -> None:
    number = check_finite(value, "queued_at")
    assert (number, type(number)) == (float(value), float)


def test_minus_one_is_a_number_and_a_count_like_any_other() -> None:
    # -1 is what the compiled checks return when they raise.
    assert check_finite(-1.0, "x") == -1.0
    assert check_count(-1, "x", -5) == -1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^queued_at must be a finite number, got"):
        check_finite(value, "queued_at")


@pytest.mark.parametrize("value", [True, "1.0", None, 1j, [1.0]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"^queued_at must be an int or a float, got"):
        check_finite(value, "queued_at")


@pytest.mark.parametrize("value", [0, 0.0, -0.0, -1, -5e-324])
def test_positive_means_above_zero(value: float) -> None:
    assert check_positive(5e-324, "band_s") == 5e-324
    with pytest.raises(ValueError, match=r"^band_s must be above 0, got"):
        check_positive(value, "band_s")


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_a_count_is_a_real_int(value: object) -> None:
    with pytest.raises(TypeError, match=r"^turns must be an int, got"):
        check_count(value, "turns", 0)


def test_a_count_runs_from_its_minimum_to_the_largest_64_bit_int() -> None:
    assert check_count(0, "turns", 0) == 0
    assert check_count(2**63 - 1, "turns", 0) == 2**63 - 1
    with pytest.raises(ValueError, match=r"^turns must be at least 1, got 0"):
        check_count(0, "turns", 1)
    with pytest.raises(ValueError, match=r"^turns must be at most 2\*\*63 - 1, got 9223372036854775808"):
        check_count(2**63, "turns", 0)


def test_values_too_long_to_print_are_cut_in_messages() -> None:
    with pytest.raises(ValueError, match=r"got an int of 33220 bits$"):  # beyond what int() may print
        check_count(10**10_000, "turns", 0)
    with pytest.raises(ValueError, match="512 bytes") as raised:
        check_label("x" * 10_000, "label")
    assert len(str(raised.value)) < 200
    with pytest.raises(TypeError) as raised_type:
        check_finite(list(range(10_000)), "band_s")
    assert len(str(raised_type.value)) < 400
