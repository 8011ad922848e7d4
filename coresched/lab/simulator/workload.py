"""Trajectories as the flat columns the simulator reads."""

import random
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from coresched.errors import InputError
from coresched.trajectory.schema import Trajectory

NO_ENVIRONMENT = -1.0
NO_KIND = -1

T_co = TypeVar("T_co", covariant=True)


class Column(Protocol[T_co]):
    """Something of each sample, or of each turn."""

    def __getitem__(self, index: int, /) -> T_co: ...


class RequestColumns(Protocol):
    """What a worker reads of the requests it is given: a Workload, or requests that come as they please."""

    @property
    def labels(self) -> Column[str | None]: ...
    @property
    def prompt_tokens(self) -> Column[int]: ...
    @property
    def output_tokens(self) -> Column[int]: ...
    @property
    def cached_tokens(self) -> Column[int]: ...
    @property
    def group(self) -> Column[int]: ...
    @property
    def shared_tokens(self) -> Column[int]: ...


@dataclass(frozen=True)
class Workload:
    """A batch in submission order.

    Turn columns of sample i are ``first_turn[i]`` to ``first_turn[i + 1]``.
    """

    labels: list[str]
    first_turn: "array[int]"
    prompt_tokens: "array[int]"
    """Prompt of each turn."""
    output_tokens: "array[int]"
    cached_tokens: "array[int]"
    """What the worker can still use of this turn's prompt and reply in the next one."""
    environment_s: "array[float]"
    """Duration of the environment stage after each turn; NO_ENVIRONMENT where there is none."""
    environment_kind: "array[int]"
    """Stages of one kind, or of none recorded, have one number; NO_KIND where there is no stage."""
    group: "array[int]"
    """Trajectories of one group share the first ``shared_tokens`` of their prompts."""
    shared_tokens: "array[int]"

    @property
    def samples(self) -> int:
        return len(self.labels)

    @property
    def groups(self) -> int:
        return max(self.group) + 1


def submission_order(trajectories: Iterable[Trajectory], seed: int) -> list[Trajectory]:
    """The order in which a batch is submitted: the given one at seed 0, else a shuffled one."""
    order = list(trajectories)
    if seed:
        random.Random(seed).shuffle(order)
    return order


def build_workload(
    trajectories: Iterable[Trajectory],
    *,
    page_tokens: int,
    seed: int = 0,
    absent_environment_s: float | None = None,
) -> Workload:
    """Lay the trajectories out for a simulated run.

    A reply whose ``kept_tokens`` is less than its output leaves the next prompt different from what the
    worker computed; only the turn's prompt stays reusable then. Shared prefixes are shared in whole pages.
    ``absent_environment_s`` stands in for environment durations that were not recorded; without it they are
    an InputError, because a makespan without them would be wrong.
    """
    order = submission_order(trajectories, seed)
    if not order:
        raise InputError("there is no trajectory to simulate; give at least one")
    first_turn, prompt, output = array("q", [0]), array("q"), array("q")
    cached, group, shared = array("q"), array("q"), array("q")
    environment, kind = array("d"), array("q")
    kind_of: dict[str | None, int] = {}
    group_of: dict[tuple[str | None, int], int] = {}
    for trajectory in order:
        shared_tokens = trajectory.shared_prefix_tokens // page_tokens * page_tokens
        for number, (turn, prompt_tokens) in enumerate(
            zip(trajectory.turns, trajectory.prompt_tokens(), strict=True)
        ):
            if prompt_tokens < 1:
                raise InputError(
                    f"trajectory {trajectory.id!r}: the prompt of turns[{number}] has 0 tokens; a "
                    f"model call needs at "
                    "least 1, so set initial_prompt_tokens"
                )
            prompt.append(prompt_tokens)
            output.append(turn.output_tokens)
            cached.append(
                prompt_tokens + turn.output_tokens if turn.kept == turn.output_tokens else prompt_tokens
            )
            duration, kind_number = NO_ENVIRONMENT, NO_KIND
            if turn.env is not None:
                kind_number = kind_of.setdefault(turn.env.kind, len(kind_of))
                recorded = turn.env.duration_s if turn.env.duration_s is not None else absent_environment_s
                if recorded is None:
                    raise InputError(
                        f"trajectory {trajectory.id!r}: turns[{number}].env.duration_s is absent; record it, "
                        "or say what to assume with --absent-environment-s SECONDS"
                    )
                duration = recorded
            environment.append(duration)
            kind.append(kind_number)
        first_turn.append(len(prompt))
        shared.append(shared_tokens)
        group.append(group_of.setdefault((trajectory.group, shared_tokens), len(group_of)))
    labels = [f"{seed}:{trajectory.id}" if seed else trajectory.id for trajectory in order]
    return Workload(labels, first_turn, prompt, output, cached, environment, kind, group, shared)
