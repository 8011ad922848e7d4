"""What a live replay measures is the recorded workload, and goes as the simulator says it would."""

import asyncio
import heapq
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec
import pytest
from simulated import trajectory
from simulated_worker import metrics, running_worker

from coresched.lab.replay import conduct as conducting
from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.events import EnvironmentStage, Inference, read_events
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.protocol import Answer, Protocol, sglang
from coresched.lab.replay.record import EVENTS
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import RunSettings
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Trajectory

BESIDE_S = 0.05
ATTEMPTS = 3


@contextmanager
def lateness_of_this_machine() -> Iterator[Callable[[], float]]:
    """The worst lateness so far of a thread that does nothing but sleep, in seconds."""
    worst, stop = [0.0], threading.Event()

    def sleep() -> None:
        while not stop.is_set():
            until = time.perf_counter() + BESIDE_S
            time.sleep(BESIDE_S)
            worst[0] = max(worst[0], time.perf_counter() - until)

    thread = threading.Thread(target=sleep)
    thread.start()
    try:
        yield lambda: worst[0]
    finally:
        stop.set()
        thread.join()


def replayed(
    batch: Sequence[Trajectory], endpoints: Sequence[Endpoint], folder: Path, **settings: object
) -> Conducted:
    done = asyncio.run(
        conduct(
            make_plan(batch),
            ReplaySettings(**settings),  # type: ignore[arg-type]
            endpoints,
            tokens=TokenSource(0, 1000, 30000),
            folder=folder,
            traces=[],
        )
    )
    assert done.ending.status == "completed", done.ending
    return done


def test_tokens_are_exact_and_pauses_as_recorded(tmp_path: Path) -> None:
    pauses = (0.05, 0.3, 0.12, 0.2)
    batch = [
        trajectory(f"t{n}", [*((5 + n, s, 70) for s in pauses), (3, None, 0)], prompt=900) for n in range(3)
    ]
    prompts, outputs = 0, 0
    with running_worker() as (url, _):
        for attempt in range(ATTEMPTS):
            folder = tmp_path / str(attempt)
            with lateness_of_this_machine() as worst_s:
                done = replayed(batch, [Endpoint("w", url)], folder, sample_concurrency=3)
            events = read_events(folder / EVENTS)
            turns = {(event.sample, event.turn): event for event in events if isinstance(event, Inference)}
            for one in batch:
                for number, (prompt, turn) in enumerate(zip(one.prompt_tokens(), one.turns, strict=True)):
                    sent = turns.pop((one.id, number))
                    # As the worker counted them.
                    assert (sent.prompt_tokens, sent.output_tokens) == (prompt, turn.output_tokens)
                    prompts, outputs = prompts + prompt, outputs + turn.output_tokens
            assert not turns
            counted = metrics(url)
            assert (counted["input_tokens_total"], counted["output_tokens_total"]) == (prompts, outputs)
            stages = [event for event in events if isinstance(event, EnvironmentStage)]
            assert sorted(stage.duration_s for stage in stages) == sorted(3 * pauses)
            late = sorted(stage.ended_s - stage.started_s - stage.duration_s for stage in stages)
            assert late[0] >= 0
            assert done.metrics.median_environment_late_s == late[5]
            assert done.metrics.p99_environment_late_s == done.metrics.worst_environment_late_s == late[11]
            beyond = median(
                stage.ended_s - stage.started_s - 1.01 * stage.duration_s - 0.005 for stage in stages
            )
            # Where every sleep of the machine is late, so are these.
            if beyond <= worst_s():
                return
    pytest.fail(f"half of the pauses are more than {beyond} s beyond 5 ms + 1 %; the machine's {worst_s()}")


class Durations:
    """SGLang's protocol, which also notes how long each turn took on its worker's own clock."""

    def __init__(self) -> None:
        self.of_label: dict[str, float] = {}
        self._asking: dict[asyncio.Task[object] | None, str] = {}

    def protocol(self) -> Protocol:
        return replace(sglang(), body=self._body, read=self._read)

    def _body(self, ids: bytes, label: str | None, output_tokens: int) -> bytes:
        assert label is not None
        self._asking[asyncio.current_task()] = label
        return sglang().body(ids, label, output_tokens)

    def _read(self, content: bytes) -> Answer:
        label = self._asking[asyncio.current_task()]  # a trajectory's turns are of one task
        took_s = json.loads(content)["meta_info"]["e2e_latency"]
        self.of_label[label] = self.of_label.get(label, 0.0) + took_s
        return sglang().read(content)


def makespan(chains_s: Sequence[float], concurrency: int) -> float:
    """When the last of these is done where each takes the slot that is free first, in order."""
    slots = [0.0] * concurrency
    for chain_s in chains_s:
        heapq.heappush(slots, heapq.heappop(slots) + chain_s)
    return max(slots)


def model_without_client() -> WorkerModel:
    """A live worker adds no time of a client's, for there is one."""
    model = load_worker_model()
    times = msgspec.structs.replace(model.times, turnaround_s=0.0, turnaround_token_s=0.0)
    return msgspec.structs.replace(model, times=times)


def test_four_live_workers_take_as_long_as_simulated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed, concurrency = 20.0, 8
    batch = [msgspec.structs.replace(one, turns=one.turns[:6]) for one in generate("swe", 16, seed=7)]
    settings = RunSettings(
        name="simulated",
        workers=4,
        sample_concurrency=concurrency,
        environment_concurrency=None,
        state_ratio=0.9,
        label_capacity=4,
        worker_policy="routing-prefix",
        routing="consistent-hash",
        environment_policy="fcfs",
    )
    simulated = simulate(batch, settings, model_without_client()).metrics
    durations = Durations()
    monkeypatch.setattr(conducting, "protocol_for", lambda *anything: durations.protocol())
    options = ["--speed", str(speed), "--schedule-policy", "routing-prefix", "--label-capacity", "4"]
    with ExitStack() as stack:
        endpoints = [
            # The simulator's names, so that each label has the same home.
            Endpoint(f"worker-{place}", stack.enter_context(running_worker(*options))[0])
            for place in range(4)
        ]
        live = replayed(
            batch,
            endpoints,
            tmp_path / "r",
            sample_concurrency=concurrency,
            environment_policy="fcfs",
            router="consistent-hash",
            speed=speed,
        ).metrics
    assert live.turns_by_worker.keys() == {f"worker-{place}" for place in range(4)}
    assert live.new_prefill_tokens == simulated.new_prefill_tokens
    chains_s = [
        durations.of_label[one.id] + sum(turn.env.duration_s or 0.0 for turn in one.turns if turn.env)
        for one in batch
    ]
    # Of what the workers took on their clocks and the recorded pauses: no load of this machine is in it, but
    # for requests that come a little later.
    taken_s = makespan(chains_s, concurrency)
    assert taken_s == pytest.approx(simulated.makespan_s, rel=0.03)
    # And what was measured has all of that in it.
    assert live.makespan_s is not None
    assert live.makespan_s > 0.99 * taken_s
