"""Hypothesis strategies for whole trajectories."""

from hypothesis import strategies as st

from coresched.trajectory.schema import Environment, Trajectory, Turn

tokens = st.integers(0, 1_000_000_000)
seconds = st.floats(0, 1e9)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    duration = draw(st.none() | seconds)
    qualities = ["absent"] if duration is None else ["exact", "derived", "estimated"]
    return Environment(
        duration_s=duration,
        response_tokens=draw(tokens),
        n_calls=draw(st.integers(0, 20)),
        kind=draw(st.none() | names),
        duration_quality=draw(st.none() | st.sampled_from(qualities)),
    )


@st.composite
def turns(draw: st.DrawFn, last: bool) -> Turn:
    output = draw(st.integers(1, 1_000_000_000))
    return Turn(
        output_tokens=output,
        kept_tokens=draw(st.none() | st.integers(0, output)),
        infer_s=draw(st.none() | seconds),
        env=draw(st.none() | environments()) if last else draw(environments()),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    initial = draw(tokens)
    statements = st.sampled_from(["exact", "derived: gaps", "estimated(model)", "absent", "unknown"])
    return Trajectory(
        id=draw(names),
        initial_prompt_tokens=initial,
        shared_prefix_tokens=draw(st.integers(0, initial)),
        group=draw(st.none() | st.sampled_from(["a", "b"])),
        turns=(*draw(st.lists(turns(last=False), max_size=5)), draw(turns(last=True))),
        source=draw(st.none() | names),
        license=draw(st.none() | names),
        meta=draw(st.dictionaries(names, st.integers(-5, 5), max_size=2))
        | ({"env_duration": draw(statements)} if draw(st.booleans()) else {}),
    )


batches = st.lists(trajectories(), min_size=1, max_size=4, unique_by=lambda trajectory: trajectory.id)
