"""Files of a recording, in any order and with copies, give the run that was written into them."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.recording.events import (
    Admission,
    Attempt,
    Completion,
    EnvironmentStage,
    FailedInference,
    Header,
    Inference,
    RecordedEvent,
    SourceName,
    TurnEnd,
    TurnStart,
)
from coresched.recording.merge import read_recording

TICK = 1 / 1024  # so that all sums of times are exact
EPOCH = 1_700_000_000.0


@dataclass
class Setting:
    """Who records, and what they can tell."""

    harness: bool
    transport: bool
    gateway: bool
    usage_at: str
    ids: bool


@st.composite
def a_setting(draw: st.DrawFn) -> Setting:
    harness, transport, gateway = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any))
    told = ["harness"] * harness + ["transport"] * transport + ["gateway"] * gateway
    return Setting(harness, transport, gateway, draw(st.sampled_from(told)), draw(st.booleans()))


class Run:
    """A run as it really was: what each source writes of it, and what is to come out, worked out plainly."""

    def __init__(self, setting: Setting, rng: random.Random) -> None:
        self.setting = setting
        self.rng = rng
        self.written: dict[str, list[RecordedEvent]] = {
            "harness-0": [],
            "harness-1": [],
            "transport": [],
            "gateway": [],
        }
        self.turns: list[tuple[object, ...]] = []
        self.stages: list[tuple[object, ...]] = []
        self.failures = 0
        self.number = 0
        for place in range(rng.randint(1, 4)):
            self._sample(f"s{place}", EPOCH + rng.randint(0, 5000) * TICK)

    def _sample(self, name: str, now: float) -> None:
        harness = self.written[f"harness-{self.rng.randint(0, 1)}"]
        harness.append(Admission(name, now))
        count = self.rng.randint(1, 4)
        pending: tuple[object, ...] | None = None
        for turn in range(count):
            began = now = now + self._ticks()
            harness.append(TurnStart(name, began, "home"))
            if pending is not None:
                self.stages.append((*pending, began))
                pending = None
            for _ in range(self.rng.choice([0, 0, 1, 2])):
                now = self._request(name, now, None)[1]
            now = self._request(name, now, turn)[1] + self._ticks()
            own = self.setting.usage_at == "harness"
            counts = (100 * (turn + 1), 10, 5 + turn) if own else (None, None, None)
            harness.append(TurnEnd(name, began, now, "home", False, *counts))
            if not self.setting.transport and not self.setting.gateway:
                self.turns.append((name, turn, "home", began, now, 100 * (turn + 1), 10, 5 + turn))
            if turn < count - 1 and self.rng.random() < 0.8:
                asked = now + self._ticks()
                granted = asked + self.rng.choice([0, 50]) * self._ticks()
                now = granted + self._ticks()
                harness.append(EnvironmentStage(name, None, asked, granted, now, None))
                pending = (name, turn, asked, granted, now)
        harness.append(Completion(name, now + self._ticks()))

    def _ticks(self) -> float:
        return self.rng.randint(1, 200) * TICK

    def _request(self, name: str, now: float, turn: int | None) -> tuple[float, float]:
        """One request, which fails if it is for no turn; a gateway may have tried another worker before."""
        self.number += 1
        sent = now + self._ticks()
        inner_sent = sent + self._ticks()
        if self.rng.random() < 0.3:
            tried = inner_sent + self._ticks()
            lost = Attempt(name, "w9", sent_s=inner_sent, ended_s=tried, reason="it got no connection")
            self.written["gateway"].append(lost)
            # Of a request that failed, what its gateway tried first is no failure of its own.
            self.failures += self.setting.gateway and (turn is not None or not self.setting.transport)
            inner_sent = tried + TICK
        inner_ended = inner_sent + self._ticks()
        ended = inner_ended + self._ticks()
        reason = "status 503" if turn is None else None
        id = f"answer-{self.number}" if self.setting.ids and turn is not None else None
        for source, worker, start, end in (
            ("transport", "g", sent, ended),
            ("gateway", "w0", inner_sent, inner_ended),
        ):
            told = turn is not None and self.setting.usage_at == source
            counts = (100 * ((turn or 0) + 1), 10, 5 + (turn or 0)) if told else (None, None, None)
            prompt, cached, output = counts
            self.written[source].append(
                Attempt(
                    name,
                    worker,
                    sent_s=start,
                    ended_s=end,
                    reason=reason,
                    answer_id=id,
                    prompt_tokens=prompt,
                    cached_tokens=cached,
                    output_tokens=output,
                )
            )
        if turn is None:
            self.failures += self.setting.transport or self.setting.gateway
        elif self.setting.gateway:
            counted = (100 * (turn + 1), 10, 5 + turn)
            self.turns.append((name, turn, "w0", inner_sent, inner_ended, *counted))
        elif self.setting.transport:
            self.turns.append((name, turn, "g", sent, ended, 100 * (turn + 1), 10, 5 + turn))
        return sent, ended


def written(run: Run, folder: Path, rng: random.Random) -> list[Path]:
    """The files of those who record, lines in any order, some of them there twice or in part."""
    names = ["harness-0", "harness-1"] if run.setting.harness else []
    names += ["transport"] * run.setting.transport + ["gateway"] * run.setting.gateway
    paths = []
    for name in names:
        zero = EPOCH - rng.randint(0, 1000) * TICK
        source: SourceName = "harness" if name.startswith("harness") else name  # type: ignore[assignment]
        head = msgspec.json.encode(Header(1, source, name, "host", 1, zero))
        lines = [msgspec.json.encode(_by_clock(event, zero)) for event in run.written[name]]
        rng.shuffle(lines)
        whole = [head, *lines, *rng.choices(lines, k=rng.randint(0, 3) if lines else 0)]
        paths.append(folder / f"events-{name}.jsonl")
        paths[-1].write_bytes(b"\n".join(whole) + b"\n")
        if rng.random() < 0.5:
            paths.append(folder / f"events-{name}-copy.jsonl")
            paths[-1].write_bytes(b"\n".join(whole[: rng.randint(1, len(whole))]) + b"\n")
    rng.shuffle(paths)
    return paths


def _by_clock(event: RecordedEvent, zero: float) -> RecordedEvent:
    times = ("at_s", "sent_s", "began_s", "requested_s", "started_s", "ended_s")
    return msgspec.structs.replace(
        event, **{name: getattr(event, name) - zero for name in times if hasattr(event, name)}
    )


@settings(max_examples=150, deadline=None)
@given(setting=a_setting(), seed=st.integers(0, 10**9))
def test_the_account_is_that_of_what_happened(setting: Setting, seed: int) -> None:
    rng = random.Random(seed)
    run = Run(setting, rng)
    with tempfile.TemporaryDirectory() as folder:
        recording = read_recording(written(run, Path(folder), rng))
    assert recording.faults == []
    zero = recording.began_at
    turns = [
        (
            event.sample,
            event.turn,
            event.worker,
            zero + event.sent_s,
            zero + event.ended_s,
            event.prompt_tokens,
            event.cached_tokens,
            event.output_tokens,
        )
        for event in recording.events
        if isinstance(event, Inference)
    ]
    assert sorted(turns, key=str) == sorted(run.turns, key=str)
    stages = [
        (
            event.sample,
            event.turn,
            zero + event.requested_s,
            zero + event.started_s,
            zero + event.ended_s,
            event.resumed_s and zero + event.resumed_s,
        )
        for event in recording.events
        if isinstance(event, EnvironmentStage)
    ]
    assert sorted(stages) == (sorted(run.stages) if setting.harness else [])
    assert sum(isinstance(event, FailedInference) for event in recording.events) == run.failures
    assert {sample.state for sample in recording.samples} == {"completed"}
    assert all(sample.by_harness == setting.harness for sample in recording.samples)
