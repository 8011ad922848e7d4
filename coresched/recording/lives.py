"""What a harness recorded of one sample, and the turns that come of it and of the requests in its time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from coresched.recording.events import (
    Admission,
    AnyEvent,
    Attempt,
    Completion,
    EnvironmentStage,
    FailedInference,
    Inference,
    RecordedEvent,
    TurnEnd,
    TurnStart,
    Withdrawal,
)
from coresched.recording.matching import Request, has_counts

UNKNOWN_WORKER: Final = "unknown"
"""The worker of a turn without a routed turn, a transport or a gateway that tells it."""

SKEW_S: Final = 1.0
"""By how much clocks of hosts may differ for a request to be found in its turn all the same."""

_RANK = {Admission: 0, TurnStart: 2, Completion: 3, Withdrawal: 3}


@dataclass
class Life:
    """One sample from its admission to its end."""

    sample: str
    began_s: float
    admission: Admission | None = None
    end: Completion | Withdrawal | None = None
    starts: list[TurnStart] = field(default_factory=list)
    ends: list[TurnEnd] = field(default_factory=list)
    stages: list[EnvironmentStage] = field(default_factory=list)

    @property
    def ended_s(self) -> float:
        return math.inf if self.end is None else self.end.at_s


@dataclass
class Turns:
    """The turns of one life, and what else is known of its requests."""

    number: int = 0
    events: list[AnyEvent] = field(default_factory=list)
    """Inference and FailedInference, and the stages with their turns."""
    by_block: int = 0
    """Turns whose request nobody recorded."""
    replaced: int = 0
    """Answers that a later one of the same turn replaced."""
    astray: int = 0
    """Requests outside of every turn."""


def lives_of(events: Iterable[RecordedEvent]) -> list[Life]:
    """The lives in one harness's file."""
    lives: list[Life] = []
    latest: dict[str, Life] = {}
    for event in sorted(events, key=_order):
        if isinstance(event, Attempt) or not hasattr(event, "sample"):
            continue
        life = latest.get(event.sample)
        if life is None or isinstance(event, Admission):
            life = latest[event.sample] = Life(event.sample, _end(event))
            lives.append(life)
        if isinstance(event, Admission):
            life.admission = event
        elif isinstance(event, TurnStart):
            life.starts.append(event)
        elif isinstance(event, TurnEnd):
            life.ends.append(event)
        elif isinstance(event, EnvironmentStage):
            life.stages.append(event)
        elif isinstance(event, Completion | Withdrawal):
            life.end = event
    return lives


def distribute(requests: Sequence[Request], lives: Sequence[Life]) -> tuple[list[list[Request]], int]:
    """The requests of each life, which are in order of their beginning, and how many are of none."""
    each: list[list[Request]] = [[] for _ in lives]
    astray = 0
    for request in requests:
        for slack_s in (0.0, SKEW_S):
            fitting = [
                place
                for place, life in enumerate(lives)
                if life.began_s - slack_s <= request.sent_s <= life.ended_s + slack_s
            ]
            if fitting:
                each[fitting[-1]].append(request)
                break
        else:
            astray += 1
    return each, astray


def turns_of(life: Life, requests: Sequence[Request]) -> Turns:
    """The turns of a life: those of its blocks or, if it has none, the requests that were answered."""
    turns = Turns()
    if life.starts or life.ends:
        _turns_of_blocks(life, requests, turns)
    else:
        for request in requests:
            _failures(life.sample, request, turns)
            if request.answered:
                _add(_inference(life.sample, turns.number, request, None), turns)
    begun = sorted(
        [start.at_s for start in life.starts]
        + [end.began_s for end in life.ends]
        + ([] if life.starts or life.ends else [request.sent_s for request in requests])
    )
    done = [event.ended_s for event in turns.events if isinstance(event, Inference)]
    for stage in life.stages:
        before = sum(ended_s <= stage.started_s for ended_s in done)
        after = bisect_left(begun, stage.ended_s)
        turns.events.append(
            EnvironmentStage(
                stage.sample,
                turn=before - 1 if before else None,
                requested_s=stage.requested_s,
                started_s=stage.started_s,
                ended_s=stage.ended_s,
                duration_s=None,
                resumed_s=begun[after] if after < len(begun) else None,
                failed=stage.failed,
            )
        )
    return turns


def _turns_of_blocks(life: Life, requests: Sequence[Request], turns: Turns) -> None:
    ended = {end.began_s for end in life.ends}
    blocks: list[TurnEnd | TurnStart] = [*life.ends]
    blocks += [start for start in life.starts if start.at_s not in ended]  # open when the file ended
    blocks.sort(key=_began)
    begun = [_began(block) for block in blocks]
    made: list[list[Request]] = [[] for _ in blocks]
    for request in requests:
        place = _block_of(request, blocks, begun)
        if place is None:
            turns.astray += 1
        else:
            made[place].append(request)
    for block, own in zip(blocks, made, strict=True):
        answered = [request for request in own if request.answered]
        for request in own:
            _failures(life.sample, request, turns)
        if isinstance(block, TurnStart):
            continue
        if block.failed:
            wasted = [request.nearest for request in answered]
            spans = [(one.sent_s, one.ended_s, one.worker) for one in wasted]
            if not own:
                spans = [(block.began_s, block.ended_s, block.worker or UNKNOWN_WORKER)]
            turns.events += [
                FailedInference(life.sample, turns.number, worker, sent_s, ended_s, "the turn's block raised")
                for sent_s, ended_s, worker in spans
            ]
            continue
        turns.replaced += max(len(answered) - 1, 0)
        last = max(answered, key=lambda request: request.ended_s, default=None)
        turns.by_block += last is None
        _add(_inference(life.sample, turns.number, last, block), turns)


def _block_of(request: Request, blocks: Sequence[TurnEnd | TurnStart], begun: Sequence[float]) -> int | None:
    """The block that shares most of the request's time or, if none does, is nearest."""
    place = bisect_right(begun, request.sent_s)
    near = range(max(place - 2, 0), min(place + 2, len(blocks)))
    shared = [
        (min(request.ended_s, _ended(blocks[one])) - max(request.sent_s, begun[one]), -one) for one in near
    ]
    shared_s, best = max(shared)
    return -best if shared_s >= -SKEW_S else None


def _inference(sample: str, number: int, request: Request | None, block: TurnEnd | None) -> Inference:
    """The turn as its last answer shows it, or its block where nobody recorded that."""
    if request is None:
        assert block is not None
        return Inference(
            sample,
            number,
            block.worker or UNKNOWN_WORKER,
            sent_s=block.began_s,
            ended_s=block.ended_s,
            prompt_tokens=block.prompt_tokens,
            cached_tokens=block.cached_tokens,
            output_tokens=block.output_tokens,
            first_token_s=None,
        )
    nearest, counts = request.nearest, request.counts
    told: Attempt | TurnEnd = counts
    if not has_counts(counts) and block is not None and block.prompt_tokens is not None:
        told = block
    return Inference(
        sample,
        number,
        nearest.worker,
        sent_s=nearest.sent_s,
        ended_s=nearest.ended_s,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        output_tokens=told.output_tokens,
        first_token_s=nearest.first_byte_s if nearest.streamed else None,
        reasoning_tokens=counts.reasoning_tokens,
    )


def _add(turn: Inference, turns: Turns) -> None:
    turns.events.append(turn)
    turns.number += 1


def _failures(sample: str, request: Request, turns: Turns) -> None:
    for one in request.failures:
        reason = one.reason or "its client did not get the answer"
        turns.events.append(
            FailedInference(sample, turns.number, one.worker, one.sent_s, one.ended_s, reason)
        )


def _began(block: TurnEnd | TurnStart) -> float:
    return block.at_s if isinstance(block, TurnStart) else block.began_s


def _ended(block: TurnEnd | TurnStart) -> float:
    return math.inf if isinstance(block, TurnStart) else block.ended_s


def _end(event: RecordedEvent) -> float:
    """When it was over."""
    return float(getattr(event, "at_s", getattr(event, "ended_s", 0.0)))


def _order(event: RecordedEvent) -> tuple[float, int]:
    return _end(event), _RANK.get(type(event), 1)
