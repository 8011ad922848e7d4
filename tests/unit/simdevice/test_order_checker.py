"""The order proof: a record of routing-prefix passes, and each thing that may be wrong with one."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from coresched_simdevice.virtual.order import OrderError, PrefixChecker, check_all
from coresched_simdevice.virtual.passes import Asked, PrefixPass, Queued, read_passes
from hypothesis import given
from hypothesis import strategies as st
from scheduling_passes import recorded_run

CAPACITY = 3


def swapped_order(one: PrefixPass) -> PrefixPass | None:
    if len(one.ordered) < 2:
        return None
    return msgspec.structs.replace(one, ordered=(*one.ordered[:-2], one.ordered[-1], one.ordered[-2]))


def unasked_hit(one: PrefixPass) -> PrefixPass | None:
    return msgspec.structs.replace(one, asked=one.asked[1:]) if one.asked else None


def needless_question(one: PrefixPass) -> PrefixPass | None:
    asked = {each.id for each in one.asked}
    others = [each.id for each in one.waiting if each.id not in asked]
    return msgspec.structs.replace(one, asked=(*one.asked, Asked(others[0], 0))) if others else None


def question_asked_twice(one: PrefixPass) -> PrefixPass | None:
    return msgspec.structs.replace(one, asked=one.asked + one.asked[-1:]) if one.asked else None


def lost_label(one: PrefixPass) -> PrefixPass | None:
    return msgspec.structs.replace(one, labels=one.labels[1:]) if one.labels else None


def labels_in_other_order(one: PrefixPass) -> PrefixPass | None:
    return msgspec.structs.replace(one, labels=one.labels[::-1]) if len(one.labels) > 1 else None


def admission_out_of_order(one: PrefixPass) -> PrefixPass | None:
    if not one.admitted or one.ordered[-1] in one.admitted:
        return None
    return msgspec.structs.replace(one, admitted=(*one.admitted[:-1], one.ordered[-1]))


def request_left_out(one: PrefixPass) -> PrefixPass | None:
    return msgspec.structs.replace(one, waiting=one.waiting[1:]) if one.waiting else None


FAULTS = [
    swapped_order,
    unasked_hit,
    needless_question,
    question_asked_twice,
    lost_label,
    labels_in_other_order,
    admission_out_of_order,
    request_left_out,
]


@given(seed=st.integers(0, 2**32), capacity=st.integers(1, 8))
def test_the_record_of_a_run_passes(seed: int, capacity: int) -> None:
    passes = recorded_run(seed, capacity)
    assert check_all(PrefixChecker(capacity), passes) == len(passes)


@pytest.mark.parametrize("fault", FAULTS)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_one_wrong_pass_is_found(
    fault: Callable[[PrefixPass], PrefixPass | None], seed: int, data: st.DataObject
) -> None:
    passes = recorded_run(seed, CAPACITY)
    able = [number for number, one in enumerate(passes) if fault(one) is not None]
    if not able:
        return
    place = data.draw(st.sampled_from(able))
    wrong = fault(passes[place])
    assert wrong is not None
    with pytest.raises(OrderError, match=f"pass {place + 1}: "):
        check_all(PrefixChecker(CAPACITY), [*passes[:place], wrong, *passes[place + 1 :]])


def test_another_capacity_is_found() -> None:
    passes = recorded_run(seed=7, label_capacity=CAPACITY, passes=60)
    for capacity in (CAPACITY - 1, CAPACITY + 1):
        with pytest.raises(OrderError, match="label set"):
            check_all(PrefixChecker(capacity), passes)


def test_a_missing_pass_is_found() -> None:
    passes = recorded_run(seed=7, label_capacity=CAPACITY, passes=60)
    place = next(number for number, one in enumerate(passes) if one.admitted and number > 10)
    with pytest.raises(OrderError):
        check_all(PrefixChecker(CAPACITY), passes[:place] + passes[place + 1 :])


def waits(*labels: str, entry: int = 1, asked: tuple[Asked, ...] = (), admitted: bool = False) -> PrefixPass:
    """A pass over a request r1 alone, whose label is a, with ``labels`` in the label set."""
    return PrefixPass(
        waiting=(Queued("r1", "a", entry),),
        labels=labels,
        asked=asked,
        ordered=("r1",),
        admitted=("r1",) if admitted else (),
        continued=(),
    )


def test_a_request_that_waits_again_is_not_asked_again() -> None:
    first, again, third = (
        waits(admitted=True),
        waits("a", asked=(Asked("r1", 64),), admitted=True),
        waits("a"),
    )
    assert check_all(PrefixChecker(CAPACITY), [first, again, third]) == 3
    with pytest.raises(OrderError, match="hits asked for"):
        check_all(PrefixChecker(CAPACITY), [first, again, again])


def test_a_request_keeps_its_entry() -> None:
    with pytest.raises(OrderError, match="changed its label or entry"):
        check_all(PrefixChecker(CAPACITY), [waits(), waits(entry=2)])


def test_passes_are_read_as_they_were_written(tmp_path: Path) -> None:
    passes = recorded_run(seed=1, label_capacity=CAPACITY)
    path = tmp_path / "passes.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in passes))
    assert list(read_passes(path)) == passes
