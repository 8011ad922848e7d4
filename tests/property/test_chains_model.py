"""The depths and the oldest wait of a batch's samples against plain lists."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coresched.service.batches.chains import DEPTHS, Chains, depth
from coresched.service.batches.samples import SampleRecord


def group(turns: int) -> str:
    """The name of the group in which so many turns are, from the names alone."""
    for name in DEPTHS:
        first, _, last = name.partition("-")
        if name.endswith("+"):
            if turns >= int(name[:-1]):
                return name
        elif int(first) <= turns <= int(last or first):
            return name
    raise AssertionError(turns)


def test_every_number_of_turns_is_in_its_group() -> None:
    assert [DEPTHS[depth(turns)] for turns in range(200)] == [group(turns) for turns in range(200)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["turn", "turn", "queue", "queue", "grant", "end"]), st.integers(0, 4)),
        max_size=400,
    ),
    st.lists(st.integers(0, 50), min_size=400, max_size=400),
)
def test_depths_and_the_oldest_wait(steps: list[tuple[str, int]], starts: list[int]) -> None:
    chains = Chains()
    records = [SampleRecord(str(place), place, 0.0) for place in range(5)]
    turns: dict[int, int] = {}
    waits: dict[int, float] = {}
    for (what, place), start in zip(steps, starts, strict=False):
        record = records[place]
        if place not in turns:
            chains.admitted(record)
            turns[place] = 0
        elif what == "turn":
            chains.advanced(record)
            turns[place] += 1
        elif what == "queue" and place not in waits:
            record.since = float(start)
            chains.queued(record)
            waits[place] = record.since
        elif what == "grant" and place in waits:
            chains.unqueued(record)
            del waits[place]
        elif what == "end" and place not in waits:
            chains.let_go(record)
            del turns[place]
        if start % 3:  # reading cleans up, so read only now and then
            assert chains.oldest() == min(waits.values(), default=None)
        counted = Counter(group(number) for number in turns.values())
        assert chains.by_depth == [counted[name] for name in DEPTHS]


def test_entries_of_waits_that_ended_do_not_pile_up_behind_one_that_lasts() -> None:
    chains = Chains()
    patient, quick = SampleRecord("a", 0, 0.0), SampleRecord("b", 1, 0.0)
    patient.since, quick.since = 1.0, 2.0
    chains.queued(patient)
    for _ in range(10_000):
        chains.queued(quick)
        chains.unqueued(quick)
    assert chains.oldest() == 1.0
    assert len(chains._by_start) < 100
