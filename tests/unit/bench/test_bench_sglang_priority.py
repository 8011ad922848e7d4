"""`python -m bench sglang-priority` with a program in SGLang's place, and its plain-Python peer."""

import json
import subprocess
import sys
from collections.abc import Callable
from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sglang_priority.plain import SortedQueue
from coresched.core.reference import ReferenceAttachedOrder, ReferencePrefixPolicy, ReferenceWaiting

ROOT = Path(__file__).parents[3]
ENGINE = {
    "sglang": "0.5.23",
    "python": "CPython 3.11.7",
    "tree": "RustUnifiedTreeCore",
    "resident": 100,
    "resident_tokens": 4_910_560,
    "shortest": 10_000,
    "longest": 100_000,
    "repeats": 3,
}
SECONDS = {
    "fcfs": 1e-3,
    "fcfs, refreshing pass": 16e-3,
    "dfs-weight": 0.2,
    "lpm, no limit": 0.3,
    "routing-key": 200e-6,
    "plain Python, none new": 300e-6,
    "plain Python, 1 left": 400e-6,
    "routing-prefix, none new": 3e-6,
    "routing-prefix, 1 left": 20e-6,
    "routing-prefix, 1 new": 1e-3,
    "routing-prefix, 10 new": 4e-3,
    "routing-prefix, 100 new": 30e-3,
    "routing-prefix, all new": 40e-3,
}


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    """Makes an executable that prints these lines of JSON, whatever it is asked, and exits with this code."""

    def make(*lines: object, code: int = 0, words: str = "") -> str:
        path = tmp_path / "python"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path.write_text(
            f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\n"
            f"sys.stderr.write({words!r})\nsys.exit({code})\n"
        )
        path.chmod(0o755)
        return str(path)

    return make


def lines(sizes: tuple[int, ...] = (100, 1000)) -> list[object]:
    rows: list[object] = [{"doing": "the tree"}, {"engine": ENGINE}]
    for waiting in sizes:
        rows += [
            {"row": {"waiting": waiting, "policy": policy, "samples_s": [median, 2 * median, median / 2]}}
            for policy, median in SECONDS.items()
        ]
    return rows


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", "sglang-priority", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONUTF8": "1"},
        timeout=60,
    )


def test_the_table_shows_each_policy_a_pass_and_a_request(program: Callable[..., str]) -> None:
    done = bench("--sglang-python", program(*lines()))
    assert (done.returncode, done.stderr) == (0, "")
    shown = [line.split() for line in done.stdout.splitlines()]
    assert ["1,000", "fcfs", "1.00", "ms", "75%", "1,000"] in shown
    assert ["plain", "Python,", "none", "new", "300", "µs", "75%", "300", "100x"] in shown
    assert ["plain", "Python,", "1", "left", "400", "µs", "75%", "400", "20.0x"] in shown
    assert ["dfs-weight", "200", "ms", "75%", "200,000", "50.0x", "66,667x"] in shown
    assert ["routing-prefix,", "none", "new", "3.00", "µs", "75%", "3.00"] in shown


def test_json_has_the_engine_and_a_row_for_each(program: Callable[..., str]) -> None:
    done = bench("--json", "--sglang-python", program(*lines()))
    report = json.loads(done.stdout)
    assert report["engine"] == ENGINE
    assert report["rows"][0] == {
        "waiting": 100,
        "policy": "fcfs",
        "pass_s": 1e-3,
        "pass_spread_s": [0.75e-3, 1.5e-3],
        "waiting_request_s": 1e-5,
        "ratio": None,
        "none_new_ratio": None,
    }
    lpm = next(row for row in report["rows"] if row["policy"] == "lpm, no limit")
    assert isclose(lpm["ratio"], 75)
    assert isclose(lpm["none_new_ratio"], 100_000)
    assert len(report["rows"]) == 2 * len(SECONDS)


def test_the_page_draws_the_growth_of_each_policy(program: Callable[..., str], tmp_path: Path) -> None:
    page = tmp_path / "growth.html"
    done = bench("--plot", str(page), "--sglang-python", program(*lines((100, 500, 1000))))
    assert (done.returncode, done.stderr) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert text.count("<polyline") == len(SECONDS)
    for policy in SECONDS:
        assert f"<title>{policy}</title>" in text


def test_an_environment_without_sglang_is_named() -> None:
    done = bench("--sglang-python", sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"python -m bench: --sglang-python '{sys.executable}' must have sglang")
    assert len(done.stderr.splitlines()) == 1


def test_a_program_that_is_not_there_is_named() -> None:
    done = bench("--sglang-python", "/no/such/python")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'/no/such/python' is not a program" in done.stderr


def test_a_program_that_fails_shows_its_last_words(program: Callable[..., str]) -> None:
    done = bench("--sglang-python", program(*lines()[:5], code=1, words="Traceback\nKeyError: 'mamba'\n"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("SGLang's environment failed: Traceback KeyError: 'mamba'\n")


def test_a_plot_that_cannot_be_written_is_refused_before_measuring(program: Callable[..., str]) -> None:
    done = bench("--plot", "/no/such/folder/page.html", "--sglang-python", program(code=3))
    assert done.returncode == 2
    assert "--plot" in done.stderr


@given(
    admitted=st.lists(st.sampled_from("abcd"), max_size=8),
    waiting=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 3)), max_size=20),
)
def test_the_plain_peer_orders_as_the_reference(
    admitted: list[str], waiting: list[tuple[str, int, int]]
) -> None:
    def requests() -> list[Any]:
        return [
            SimpleNamespace(
                number=number,
                routing_key=label,
                time_stats=SimpleNamespace(wait_queue_entry_time=float(entered)),
                cached=hit,
            )
            for number, (label, entered, hit) in enumerate(waiting)
        ]

    def enter(request: Any) -> ReferenceWaiting:
        return ReferenceWaiting("", request.routing_key, request.time_stats.wait_queue_entry_time)

    def prefix_hit(request: Any) -> int:
        return int(request.cached)

    plain, reference = SortedQueue(2, prefix_hit), ReferenceAttachedOrder(ReferencePrefixPolicy(2), "waiting")
    for label in admitted:
        plain.admitted(label)
        reference.policy.admitted(label)
    ours, theirs = requests(), requests()
    plain.order(ours)
    reference.order(theirs, enter, prefix_hit)
    assert [request.number for request in ours] == [request.number for request in theirs]
