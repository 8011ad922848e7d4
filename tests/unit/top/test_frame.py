"""Frames of `coresched top` at several widths and heights, and its bars."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from coresched.service.batches.chains import DEPTHS
from coresched.top.bar import Part, lengths
from coresched.top.frame import TURNS, Frame
from coresched.top.snapshot import Snapshot
from coresched.v1 import batches_pb2 as pb
from coresched.v1 import router_pb2


def batch(name: str = "eval", **changed: object) -> pb.BatchProgress:
    values = {
        "batch": name,
        "samples": 500,
        "open": 200,
        "waiting": 100,
        "admitted": 64,
        "environment_queued": 7,
        "environment_running": 5,
        "inference": 40,
        "finished": 130,
        "withdrawn": 6,
        "turns": 12_345,
        "sessions": 2,
        "elapsed_s": 3723.0,
        "makespan_s": 185.0,
        "readmissions": 3,
        "oldest_environment_wait_s": 12.34,
        "admitted_by_turns": [1, 2, 3, 8, 16, 0, 32, 2],
        "options": pb.BatchOptions(sample_concurrency=64, environment_concurrency=5),
    }
    return pb.BatchProgress(**{**values, **changed})


def workers(number: int = 3) -> router_pb2.ListWorkersResponse:
    return router_pb2.ListWorkersResponse(
        workers=[
            router_pb2.Worker(
                worker=f"http://10.0.0.{place}:30000",
                state=router_pb2.WORKER_STATE_DRAINING if place == 1 else router_pb2.WORKER_STATE_ROUTABLE,
                in_flight=4 * place,
                routed=1000 + place,
                spilled=place,
            )
            for place in range(number)
        ],
        load_bound=1.25,
        imbalance=0.5,
        imbalance_s=3.0,
        busy_s=12.0,
    )


def drawn(
    snapshot: Snapshot | None, width: int, *, state: str = "", height: int | None = None, plain: bool = False
) -> list[str]:
    """The lines of a frame, each checked to fit."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if plain else "utf-8")
    console = Console(file=file, width=width, highlight=False)
    console.print(Frame("127.0.0.1:50071", snapshot, state), height=height)
    file.seek(0)
    lines = file.read().splitlines()
    assert all(cell_len(line) <= width for line in lines)
    return lines


def test_the_groups_of_turns_are_those_of_the_service() -> None:
    assert TURNS == DEPTHS


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("plain", [False, True])
def test_all_is_there_at_every_width(width: int, plain: bool) -> None:
    lines = drawn(Snapshot((batch(),), workers()), width, plain=plain)
    text = "\n".join(lines)
    assert text.isascii() is plain
    for words in (
        "136/500 ended, 27%",
        "elapsed 1:02:03",
        "130 finished",
        "6 withdrawn",
        "5 environment",
        "7 queued",
        "40 inference",
        "12 between",
        "100 waiting",
        "200 open",
        "sample slots 64/64",
        "environments 5/5",
        "oldest wait 12.3 s",
        "turns 12,345",
        "2 sessions",
        "readmitted 3",
        "request imbalance beta 0.250, now 0.500",
        "load bound 1.25",
        "draining",
        "1,002",
    ):
        assert words in text
    assert ("makespan 3:05" in text) or width < 80
    if not plain:
        assert "32-63 █32" in text
        assert "8-15 ▄16" in text
        assert "16-31 -" in text


@pytest.mark.parametrize("plain", [False, True])
def test_resident_slots_are_shown_where_there_are_any(plain: bool) -> None:
    options = pb.BatchOptions(sample_concurrency=64, environment_concurrency=5, resident_concurrency=20)
    shown = batch(options=options, resident=20, resident_queued=8)
    text = " ".join(" ".join(drawn(Snapshot((shown,), workers()), 140, plain=plain)).split())
    assert "residents 20/20 resident queue 8" in text
    assert f"{':' if plain else '┊'} 8 resident queue" in text
    assert "4 between" in text  # 12 of them do not wait for a slot, 8 do
    without_a_cap = batch(resident=3)
    assert "residents 3 resident queue 0" in " ".join(
        drawn(Snapshot((without_a_cap,), workers()), 140)
    ).replace("  ", " ")
    assert "resident" not in "".join(drawn(Snapshot((batch(),), workers()), 140))


def test_an_order_of_admission_that_is_not_the_usual_is_shown() -> None:
    options = pb.BatchOptions(
        sample_concurrency=64, admission_policy=pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST
    )
    shown = " ".join("".join(drawn(Snapshot((batch(options=options),), workers()), 140)).split())
    assert "sample slots 64/64 longest expected first environments" in shown
    assert "longest expected first" not in "".join(drawn(Snapshot((batch(),), workers()), 140))


def test_the_bars_are_as_long_as_their_share() -> None:
    (bar,) = [line for line in drawn(Snapshot((batch(),), workers()), 100) if line.startswith("█" * 9)]
    assert bar == "█" * 24 + "x" * 3 + "▓" + "▒" * 3 + "▚" * 8 + "░" * 3 + "·" * 20 + " " * 38
    rows = [line for line in drawn(Snapshot((), workers()), 80) if line.startswith("http")]
    filled = [row.count("█") for row in rows]
    assert filled == [0, filled[2] // 2, filled[2]]
    assert filled[2] > 10


@given(st.lists(st.integers(0, 1000), max_size=9), st.integers(0, 200))
def test_lengths_add_up_and_hide_nothing(values: list[int], width: int) -> None:
    found = lengths([Part("", value, "#", "") for value in values], width)
    assert sum(found) == (width if sum(values) else 0)
    shown = sum(value > 0 for value in values)
    for value, length in zip(values, found, strict=True):
        assert length >= 0
        assert (length > 0) == (value > 0) or width < shown
        assert abs(length - value * width / max(sum(values), 1)) <= shown + 1


@pytest.mark.parametrize(("batches", "number"), [(1, 3), (1, 200), (12, 2), (12, 200), (0, 0), (0, 50)])
@pytest.mark.parametrize("height", [24, 50])
def test_a_frame_fits_into_the_terminal_and_says_what_is_left_out(
    batches: int, number: int, height: int
) -> None:
    snapshot = Snapshot(tuple(batch(f"b{place}") for place in range(batches)), workers(number))
    lines = drawn(snapshot, 80, height=height)
    assert len(lines) <= height
    text = "\n".join(lines)
    titles = sum(f"b{place} " in text for place in range(batches))
    assert titles == batches or f"... and {batches - titles} more batch" in text
    rows = sum(line.startswith("http") for line in lines)
    assert rows == number or f"... and {number - rows} more worker" in text
    assert len(drawn(snapshot, 80)) >= len(lines)


def test_names_cannot_reach_the_terminal() -> None:
    named = batch("evil\x1b[2J\nname\u202e")
    text = "\n".join(drawn(Snapshot((named,), workers()), 140))
    assert "evil?[2J?name?" in text
    assert "\x1b" not in text


def test_what_is_absent_and_what_is_over() -> None:
    over = batch(
        closed=True, samples=0, open=0, waiting=0, admitted=0, environment_queued=0, environment_running=0
    )
    for field in ("makespan_s", "oldest_environment_wait_s"):
        over.ClearField(field)
    over.options.ClearField("environment_concurrency")
    text = "\n".join(drawn(Snapshot((over,), router_pb2.ListWorkersResponse()), 80))
    assert "closed" in text
    assert "0 open batches" in text
    assert "no worker" in text
    assert "environments 0  " in text
    assert "makespan" not in text
    idle = workers()
    idle.ClearField("imbalance")
    idle.busy_s = 0
    assert "beta -, now -" in "\n".join(drawn(Snapshot((), idle), 80))
    assert "no open batch" in "\n".join(drawn(Snapshot((), idle), 80))


def test_a_service_that_is_away() -> None:
    (line,) = drawn(None, 80, state="connecting")
    assert line.split() == ["coresched", "top", "127.0.0.1:50071", "connecting"]
    assert "reconnecting, 3 s" in drawn(Snapshot((), workers()), 80, state="reconnecting, 3 s")[0]
