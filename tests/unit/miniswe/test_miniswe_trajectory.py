"""A trajectory on a real gate: stages, waits, retries of an id, ends from any thread; without the harness."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from coresched_miniswe import beginning
from coresched_miniswe.beginning import begin, instance_ended
from coresched_miniswe.runner import Task, task_of_runner
from coresched_miniswe.trajectories import Trajectory, trajectory

from coresched.client.errors import SampleEndedError, SampleTakenError
from coresched.client.gate import Gate
from coresched.client.gate.blocks import Sample


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr("coresched_miniswe.trajectories._labels", set())
    with Gate(sample_concurrency=2, environment_concurrency=1) as gate:
        yield gate


def state(gate: Gate, label: str) -> str:
    return gate.report().samples[label].state


def until_state(gate: Gate, label: str, expected: str) -> None:
    until = time.monotonic() + 60
    while state(gate, label) != expected:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_the_commands_of_one_reply_keep_the_slot(gate: Gate) -> None:
    running, other = Trajectory(gate, "a"), Trajectory(gate, "b")
    with running.turn():
        pass
    one, two = {"command": "ls"}, {"command": "ls"}
    running.expect_commands([one, two])
    with running.command(one) as first:
        pass
    assert state(gate, "a") == "environment"  # held for the second command

    def run_another() -> None:
        with other.command():
            pass

    waiting = threading.Thread(target=run_another)
    waiting.start()
    with running.command(two) as second:
        while state(gate, "b") != "queued":
            time.sleep(0.001)
        time.sleep(0.05)
    waiting.join()
    assert (first.queue_s, second.queue_s) == (0, 0)
    assert second.execution_s >= 0.05
    assert running.info()["environment_stages"] == 1
    other.end()
    running.end()
    assert other.info()["environment_queue_s"] >= 0.05
    assert (state(gate, "a"), state(gate, "b")) == ("finished", "finished")


def test_a_command_that_raises_ends_the_stage(gate: Gate) -> None:
    running = Trajectory(gate, "a")
    actions = [{}, {}]
    running.expect_commands(actions)
    with pytest.raises(RuntimeError), running.command(actions[0]):
        raise RuntimeError
    assert state(gate, "a") == "admitted"
    running.expect_commands(actions)
    with pytest.raises(KeyError), running.command(actions[0], harmless=KeyError):
        raise KeyError
    running.end()
    # Only the second counts as a stage that ended well.
    assert gate.report().samples["a"].environment_stages == 1


def test_a_reply_whose_commands_do_not_all_run_gives_the_slot_back_at_the_next_turn(gate: Gate) -> None:
    running = Trajectory(gate, "a")
    actions = [{}, {}]
    running.expect_commands(actions)
    with running.command(actions[0]):
        pass
    with running.turn() as turn:
        assert state(gate, "a") == "inference"
        assert turn.headers["x-smg-routing-key"] == "a"
    running.end()


def test_a_command_that_the_model_did_not_ask_for_holds_no_slot_behind_it(gate: Gate) -> None:
    running = Trajectory(gate, "a")
    running.expect_commands([{"command": "ls"}])
    with running.command({"command": "ls"}):  # a person's, who rejected the model's
        pass
    assert state(gate, "a") == "admitted"
    running.end()


def test_commands_side_by_side_share_one_slot(gate: Gate) -> None:
    running = Trajectory(gate, "a")
    together = threading.Barrier(3)

    def command(action: object) -> None:
        with running.command(action):
            together.wait(20)

    actions = [{}, {}, {}]
    running.expect_commands(actions)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(command, actions))
    assert running.info()["environment_stages"] == 1
    running.end()


def test_waits_move_the_agent_s_clock(gate: Gate) -> None:
    running = Trajectory(gate, "a")
    agent = SimpleNamespace(_start_time=100.0)
    running.run_by(agent, waited=True)
    admitted = running.info()["admission_wait_s"]
    with running.command() as command:
        pass
    assert agent._start_time == pytest.approx(100 + admitted + command.queue_s)
    running.run_by(SimpleNamespace(), waited=True)  # an agent without such a clock
    running.end()


def test_an_id_that_was_used_gets_a_number(gate: Gate) -> None:
    labels = []
    for _ in range(3):
        running = Trajectory(gate, "a")
        labels.append(running.label)
        running.end()
        running.end()
    assert labels == ["a", "a#2", "a#3"]
    with pytest.raises(ValueError, match="printable ASCII"):
        Trajectory(gate, "é")


@pytest.mark.parametrize("error", [SampleEndedError("a", "finished"), SampleTakenError("a")])
def test_an_id_that_another_process_had_gets_a_number(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    entered = Sample.__enter__

    def enter(sample: Sample) -> Sample:
        if sample.id == "a":
            raise error
        return entered(sample)

    monkeypatch.setattr(Sample, "__enter__", enter)
    running = Trajectory(gate, "a")
    assert running.label == "a#2"
    running.end()


def test_a_worker_that_is_all_there_is_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresched_miniswe.trajectories._labels", set())
    with Gate(sample_concurrency=1, workers=["http://one"]) as gate:
        running = Trajectory(gate, "a")
        with running.turn(("http://one",)) as turn:
            assert turn.worker == "http://one"
        with running.turn(("http://unknown",)) as turn:
            assert turn.worker == "http://one"
        running.end()


def test_a_resident_slot_is_held_to_the_end() -> None:
    with Gate(sample_concurrency=2, resident_concurrency=1) as gate, ThreadPoolExecutor() as threads:
        first, second = Trajectory(gate, "a"), Trajectory(gate, "b")
        first.keep_resident()
        first.keep_resident()
        waiting = threads.submit(second.keep_resident)
        until_state(gate, "b", "resident_queued")
        first.end()
        waiting.result()
        assert (first.info()["resident_wait_s"], second.info()["resident_wait_s"] > 0) == (0, True)
        second.end()


def test_the_block_for_other_agents(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresched_miniswe.trajectories.process_gate", lambda: gate)
    with ExitStack() as stack:
        outer = stack.enter_context(trajectory("a"))
        assert outer is not None
        assert stack.enter_context(trajectory("b")) is outer
    with pytest.raises(RuntimeError), trajectory("c"):
        raise RuntimeError
    assert (state(gate, "a"), state(gate, "c")) == ("finished", "withdrawn")
    monkeypatch.setattr("coresched_miniswe.trajectories.process_gate", lambda: None)
    with trajectory("d") as none:
        assert none is None


def test_what_a_runner_ends_and_too_few_threads_are_told_of_once(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beginning, "_told", set())
    monkeypatch.setattr(beginning, "_pool_seen", threading.Event())
    with ThreadPoolExecutor(1) as pool:
        begun = [pool.submit(begin, gate, Task(name, ends=True)).result() for name in ("x", "y")]
    assert [record.getMessage() for record in caplog.records] == [
        "-w 1 is below CORESCHED_SAMPLE_CONCURRENCY 2: this process never has more than 1 samples; use -w 2"
    ]
    begun[1].failure = RuntimeError
    for name in ("x", "y", "never begun"):
        instance_ended(name)
    assert (state(gate, "x"), state(gate, "y")) == ("finished", "withdrawn")


def test_the_task_is_read_from_the_frames_of_mini_swe_agent_alone() -> None:
    instance = {"instance_id": "t"}
    assert task_of_runner() == Task()
    source = "def get_sb_environment(config, instance):\n    return found()\n"
    source += (
        "def process_instance(instance, progress_manager):\n    return get_sb_environment({}, instance)\n"
    )
    for module, expected in (
        ("minisweagent.run.benchmarks.swebench", Task("t", instance, ends=True)),
        ("someone.else", Task()),
    ):
        names = {"__name__": module, "found": task_of_runner}
        exec(source, names)
        assert names["process_instance"](instance, None) == expected  # type: ignore[operator]
