"""SharedRouter against LoadBoundedRouter with each request released by hand, once."""

from hypothesis import given
from hypothesis import strategies as st

from coresched.client.shared import Flight, SharedRouter
from coresched.core.ring import LoadBoundedRouter

WORKERS = ["w0", "w1", "w2"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("route"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["end", "drop", "move"]), st.integers(0, 40)),
    ),
    max_size=60,
)


@given(steps=STEPS, load_bound=st.sampled_from([1.0, 1.25, 3.0]))
def test_however_often_a_request_ends_it_is_released_once(
    steps: list[tuple[str, int]], load_bound: float
) -> None:
    ours = SharedRouter(WORKERS, load_bound=load_bound, virtual_nodes=4)
    twin = LoadBoundedRouter(WORKERS, load_bound, 4)
    flights: list[Flight | None] = []
    open_: list[bool] = []
    for step, number in steps:
        if step == "route":
            flight = ours.route(f"t{number}")
            assert flight.worker == twin.route(f"t{number}")
            flights.append(flight)
            open_.append(True)
            del flight
        elif flights:
            onto = WORKERS[number % len(WORKERS)]
            number %= len(flights)
            ended = flights[number]
            if ended is None:
                continue
            if step == "move":
                before = ended.worker
                ended.moved(onto)
                if open_[number]:
                    twin.hold(onto)
                    twin.release(before)
                    assert ended.worker == onto
                del ended
                assert ours.loads() == twin.loads()
                continue
            if step == "end":
                ended.end()
            else:
                flights[number] = None
            if open_[number]:
                open_[number] = False
                twin.release(ended.worker)
            del ended
        assert ours.loads() == twin.loads()
    flights.clear()
    assert set(ours.loads().values()) == {0}
