"""The first open sample, found fast, is the one that a search finds."""

from hypothesis import given
from hypothesis import strategies as st

from coresched.service.batches.samples import OpenSamples, SampleRecord


@given(
    st.lists(st.sampled_from(["append", "take first", "take", "put back", "look"]), min_size=20, max_size=60),
    st.randoms(),
)
def test_the_first_open_sample_is_that_of_a_search(steps: list[str], chance: object) -> None:
    records: list[SampleRecord] = []
    opens = OpenSamples("submission")
    for step in steps:
        taken = [record for record in records if not record.open]
        free = [record for record in records if record.open]
        if step == "append":
            records.append(SampleRecord(str(len(records)), len(records), 0.0))
            opens.add(records[-1])
        elif step == "take first" and free:
            first = opens.first()
            assert first is free[0]
            opens.take(first)
        elif step == "take" and free:
            opens.take(chance.choice(free))  # type: ignore[attr-defined]
        elif step == "put back" and taken:
            opens.put_back(chance.choice(taken))  # type: ignore[attr-defined]
        else:
            assert opens.first() is (free[0] if free else None)
        assert len(opens) == sum(record.open for record in records)
