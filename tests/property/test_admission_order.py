"""The admission order is that of a plain sort, whatever came before."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from coresched.batch.admission import AdmissionOrder, Entry

LENGTHS = st.none() | st.sampled_from([0.0, 1.0, 2.0]) | st.floats(0, 1e300)
STEPS = st.tuples(st.sampled_from(["add", "add", "take first", "take", "discard", "put back"]), LENGTHS)


@dataclass
class Plain:
    name: str
    expected: float | None
    waiting: bool = True
    taken: bool = False


def first_of(samples: list[Plain], longest_first: bool) -> str | None:
    known = sorted(sample.expected for sample in samples if sample.expected is not None)
    middle = known[len(known) // 2] if known else 0.0

    def key(sample: Plain) -> tuple[bool, float]:
        if not longest_first or sample.taken:
            return False, 0.0
        return True, -(middle if sample.expected is None else sample.expected)

    return min((sample for sample in samples if sample.waiting), key=key).name if any_waits(samples) else None


def any_waits(samples: list[Plain]) -> bool:
    return any(sample.waiting for sample in samples)


@given(st.booleans(), st.lists(STEPS, min_size=10, max_size=80), st.randoms(use_true_random=False))
def test_the_first_is_that_of_a_sort(
    longest_first: bool, steps: list[tuple[str, float | None]], chance: object
) -> None:
    order: AdmissionOrder[str] = AdmissionOrder("longest-expected-first" if longest_first else "submission")
    samples: list[Plain] = []
    entries: dict[str, Entry[str]] = {}
    for step, expected in steps:
        waiting = [sample for sample in samples if sample.waiting]
        gone = [sample for sample in samples if not sample.waiting]
        if step == "add":
            sample = Plain(str(len(samples)), expected)
            samples.append(sample)
            entries[sample.name] = order.add(sample.name, expected)
        elif step == "put back" and gone:
            sample = chance.choice(gone)  # type: ignore[attr-defined]
            sample.waiting = True
            order.put_back(entries[sample.name])
        elif step != "put back" and waiting:
            name = first_of(samples, longest_first)
            sample = chance.choice(waiting)  # type: ignore[attr-defined]
            if step == "take first":
                sample = next(sample for sample in samples if sample.name == name)
            sample.waiting = False
            if step == "discard":
                order.discard(entries[sample.name])
            else:
                sample.taken = True
                order.take(entries[sample.name])
        first = order.first()
        assert (None if first is None else first.item) == first_of(samples, longest_first)
        assert len(order) == sum(sample.waiting for sample in samples)
