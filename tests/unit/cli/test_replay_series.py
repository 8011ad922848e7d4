"""`coresched replay` with several runs, as a person meets it: order, folders, comparison, ends, mistakes."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replay_engine import Engine, engine_beside
from simulated import trajectory

from coresched.cli.main import main
from coresched.trajectory.writer import write_trajectories


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "traces.jsonl"
    batch = [trajectory(f"t{n}", [(4, 0.01, 3), (3, None, 0)], prompt=40) for n in range(4)]
    write_trajectories(path, batch)
    return path


@pytest.fixture
def engine() -> Iterator[Engine]:
    with engine_beside() as running:
        yield running


def command(trace: Path, engine: Engine, *options: str) -> list[str]:
    return ["replay", str(trace), "--endpoint", f"w={engine.url}", "--output", "all", *options]


TWO = (
    *("--sample-concurrency", "3", "--configuration", "stock=--sample-concurrency 1 --no-labels"),
    *("--configuration", "other=--environment-concurrency 2", "--repeat", "2", "--alternate"),
)


def openings(engine: Engine, runs: int) -> list[set[tuple[int, ...]]]:
    """The first prompts of each run in order."""
    first = [tuple(ask.prompt) for ask in engine.asked if len(ask.prompt) == 40]
    assert len(first) == 4 * runs
    return [set(first[4 * run : 4 * run + 4]) for run in range(runs)]


def test_runs_take_turns_and_are_compared(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, *TWO, "--flush-cache", "--warm-up", "2")) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    started = [line.split()[3].rstrip(":") for line in lines if " of 4  " in line]
    assert started == ["stock-1", "other-1", "other-2", "stock-2"]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("  stock ") for line in lines) >= 5
    assert "over stock" in out
    assert "without --flush-cache" not in out
    compared = json.loads(Path("all/comparison.json").read_text())
    assert compared["order"] == started
    stock, other = compared["configurations"]
    assert stock["runs"] == {"stock-1": "completed", "stock-2": "completed"}
    assert (stock["settings"]["sample_concurrency"], stock["settings"]["labelled"]) == (1, False)
    assert (other["settings"]["sample_concurrency"], other["settings"]["environment_concurrency"]) == (3, 2)
    ratio = other["over_first"]["makespan_s"]
    assert ratio["runs"] == 2
    assert ratio["low"] <= ratio["median"] <= ratio["high"]
    made = {}
    for name in started:
        made[name] = json.loads((Path("all") / name / "run.json").read_text())
    assert [(one["configuration"], one["round"]) for one in made.values()] == [
        ("stock", 1),
        ("other", 1),
        ("other", 2),
        ("stock", 2),
    ]
    assert len({one["workload_digest"] for one in made.values()}) == 1
    assert made["stock-1"]["warm_up"]["requests_per_endpoint"] == 2
    assert made["stock-1"]["flush_cache"] is True
    # Before each run the cache is found to be one that can be flushed, and after the warm-up it is.
    assert engine.flushed == 8
    first, *others = openings(engine, 4)
    assert all(prompts == first for prompts in others)


def test_without_a_flush_no_run_sends_the_prompts_of_another(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, "--sample-concurrency", "2", "--repeat", "3")) == 0
    assert "note: without --flush-cache each run has token ids of its own" in capsys.readouterr().out
    sent = openings(engine, 3)
    assert len(set.union(*sent)) == 12
    runs = [json.loads(Path(f"all/run-{n}/run.json").read_text()) for n in (1, 2, 3)]
    assert [run["token_ids_variant"] for run in runs] == [1, 2, 3]
    assert len({run["workload_digest"] for run in runs}) == 1


def test_a_report_of_the_folder_is_by_configuration(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, *TWO)) == 0
    capsys.readouterr()
    assert main(["report", "all", "--report", "page.html"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "other took " in out
    assert "over stock" in out
    assert main(["trace", "import", "all", "--output", "again.jsonl"]) == 2
    assert capsys.readouterr().err.endswith("all has several replays; give their folders, such as all/*/\n")
    page = Path("page.html").read_text()
    assert "<h2>Medians and spread</h2>" in page
    assert page.count("stock (2 runs)</span>") == 1
    assert main(["report", "all/stock-1", "all/other-1", "all/other-2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["configuration"] for run in found["runs"]] == ["stock", "other", "other"]
    _, other = found["configurations"]
    assert other["metrics"]["makespan_s"]["runs"] == 2
    assert other["over_first"]["makespan_s"]["runs"] == 1  # stock has no second round here


def test_a_run_that_fails_is_the_last_and_what_there_is_is_compared(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.faults.extend([{}] * 8 + [400])  # in the second run
    assert main(command(trace, engine, *TWO, "--json")) == 1
    out, err = capsys.readouterr()
    assert "answered 400: no, 400; what was measured by then is kept" in err
    found = json.loads(out)
    assert found["status"] == "failed"
    stock, other = found["configurations"]
    assert (stock["runs"], other["runs"]) == ({"stock-1": "completed"}, {"other-1": "failed"})
    assert stock["metrics"]["makespan_s"]["runs"] == 1
    assert other["metrics"] == {}
    assert json.loads(Path("all/comparison.json").read_text())["configurations"] == found["configurations"]
    assert main(["report", "all", "--report", "page.html"]) == 0
    assert "other-1 did not reach its end (failed: " in Path("page.html").read_text()
    assert "all is not whole, not begun were: other-2, stock-2\n" in capsys.readouterr().out
    assert main(["report", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_begun"] == {"all": ["other-2", "stock-2"]}


def test_an_endpoint_that_cannot_be_used_any_more_ends_the_runs_as_failed(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shrinking(deque[Any]):
        """At the first request the engine begins to serve shorter contexts only."""

        def popleft(self) -> Any:
            engine.longest_context = 10
            return super().popleft()

    engine.faults = Shrinking([{}])
    assert main(command(trace, engine, *TWO)) == 1
    out, err = capsys.readouterr()
    assert "turns[0] needs a context of 44 tokens, but an endpoint serves at most 10" in err
    assert err.endswith("what was measured by then is kept\n")
    assert "1 of 4  stock-1: " in out
    compared = json.loads(Path("all/comparison.json").read_text())["configurations"]
    assert [one["runs"] for one in compared] == [{"stock-1": "completed"}, {}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--configuration", "a"], "--configuration 'a' must be NAME='OPTIONS', with a NAME of at most 40"),
        (["--configuration", "../a=--no-labels"], "must be NAME='OPTIONS'"),
        (["--configuration", "a=", "--configuration", "a="], "--configuration 'a' is given twice"),
        (
            ["--configuration", "a=--router sideways"],
            "--configuration 'a': argument --router: invalid choice: 'sideways'",
        ),
        (["--configuration", "a=--seed 3"], "--configuration 'a': --seed 3 is no scheduling option; what"),
        (["--configuration", "a='"], "--configuration 'a': \"'\" cannot be split into options: No closing"),
        (["--configuration", "a=--batch b"], "--configuration 'a': --batch is for a batch at a service"),
        (["--configuration", "a=--load-bound 2 --service h:1"], "'a': --load-bound is a matter of the serv"),
        (["--repeat", "0"], "must be at least 1"),
        (["--repeat", "2", "--alternate"], "--alternate is for several --configuration with --repeat"),
        (["--repeat", "2", "--against", "x"], "--against is for one run"),
        (["--repeat", "2", "--output", "n" * 300], "cannot be"),
        (["--configuration", "a=", "--repeat", "2"], "--endpoint http://127.0.0.1:1: cannot be connected"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    trace: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["replay", str(trace), "--endpoint", "w=http://127.0.0.1:1", "--sample-concurrency", "3"]
    try:
        code: Any = main([*given, "--output", "all", *options])
    except SystemExit as exit:
        code = exit.code
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert [path.name for path in trace.parent.iterdir()] == ["traces.jsonl"]


def test_a_configuration_may_have_what_the_command_lacks(
    trace: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trace, engine, "--configuration", "a=--sample-concurrency 2")) == 0
    capsys.readouterr()
    lacking = ["--configuration", "b=--sample-concurrency 2", "--configuration", "c=--no-labels"]
    assert main([*command(trace, engine, *lacking)[:-4], *lacking]) == 2
    assert "--configuration 'c': --sample-concurrency is missing" in capsys.readouterr().err
