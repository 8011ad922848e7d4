"""The trace schema: what one line of a trace file holds, checked when it is built or decoded.

A trajectory is a chain of turns. Prompt lengths are not stored: turn n's prompt is turn n-1's prompt, plus
the tokens kept of reply n-1, plus the environment response n-1.
"""

import re
from collections.abc import Iterable
from typing import Any, Literal, cast

import msgspec

from coresched.errors import InputError
from coresched.trajectory.refusal import MAX_NAME_BYTES, MAX_SECONDS, MAX_TOKENS, refusal

DurationQuality = Literal["exact", "derived", "estimated", "absent"]
DURATION_QUALITIES: tuple[DurationQuality, ...] = ("exact", "derived", "estimated", "absent")


class Environment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The environment stage after a turn: the tool or action job whose response the next prompt carries.

    Raises InputError for a value out of its range.
    """

    duration_s: float | None = None
    """Seconds the job runs once it has a slot, without the wait for it; None: not recorded."""
    response_tokens: int = 0
    """Tokens the response adds to the next prompt."""
    n_calls: int = 1
    """Tool calls in the stage; 0 where the harness answered by itself and no job ran."""
    kind: str | None = None
    """A free name of the environment, for example "bash" or "user"."""
    duration_quality: DurationQuality | None = None
    """How `duration_s` was obtained, where stated; read `quality`, which always answers."""

    def __post_init__(self) -> None:
        if not 0 <= self.response_tokens <= MAX_TOKENS:
            raise refusal("response_tokens", self.response_tokens)
        if not 0 <= self.n_calls <= MAX_TOKENS:
            raise refusal("n_calls", self.n_calls)
        duration = self.duration_s
        if duration is not None and not 0 <= duration <= MAX_SECONDS:
            raise refusal("duration_s", duration)
        quality = self.duration_quality
        if quality is not None:
            if quality not in DURATION_QUALITIES:
                raise refusal("duration_quality", quality)
            if (duration is None) != (quality == "absent"):
                rule = "absent where" if duration is None else "exact, derived or estimated unless"
                raise refusal("duration_quality", quality, f"{rule} duration_s is null")

    @property
    def quality(self) -> DurationQuality:
        """exact (measured), derived (from other time stamps), estimated (modelled), absent (no duration).

        A duration that nothing vouches for counts as estimated, the weakest claim.
        """
        if self.duration_s is None:
            return "absent"
        return self.duration_quality or "estimated"


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One model call and the environment stage it leads to. Raises InputError for a value out of range."""

    output_tokens: int
    """Tokens generated, reasoning included."""
    kept_tokens: int | None = None
    """Tokens of the reply that the next prompt carries, where reasoning is dropped from it; read `kept`."""
    infer_s: float | None = None
    """Seconds from sending the request to the end of the reply; None: not recorded."""
    env: Environment | None = None
    """The environment stage; None only in the last turn."""

    def __post_init__(self) -> None:
        if not 1 <= self.output_tokens <= MAX_TOKENS:
            raise refusal("output_tokens", self.output_tokens)
        kept = self.kept_tokens
        if kept is not None and not 0 <= kept <= self.output_tokens:
            raise refusal("kept_tokens", kept, f"an integer from 0 to output_tokens ({self.output_tokens})")
        if self.infer_s is not None and not 0 <= self.infer_s <= MAX_SECONDS:
            raise refusal("infer_s", self.infer_s)

    @property
    def kept(self) -> int:
        """Tokens of the reply that the next prompt carries: `kept_tokens`, or all of them."""
        return self.output_tokens if self.kept_tokens is None else self.kept_tokens


class Trajectory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One complete execution of a sample. Raises InputError for a value out of its range.

    Where `meta["env_duration"]` begins with exact, derived or estimated, that is the quality of every
    duration of the trajectory that states none itself; it is written into the environment stages here.
    """

    id: str
    """Unique within a file; the routing label of the trajectory."""
    initial_prompt_tokens: int
    """Tokens of the first prompt."""
    shared_prefix_tokens: int = 0
    """Leading tokens of the first prompt that are the same in every trajectory of the group."""
    group: str | None = None
    """Which trajectories share the prefix; None: all of the file."""
    turns: tuple[Turn, ...]
    source: str | None = None
    license: str | None = None
    meta: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _check_name("id", self.id)
        if self.group is not None:
            _check_name("group", self.group)
        if not 0 <= self.initial_prompt_tokens <= MAX_TOKENS:
            raise refusal("initial_prompt_tokens", self.initial_prompt_tokens)
        if not 0 <= self.shared_prefix_tokens <= self.initial_prompt_tokens:
            rule = f"an integer from 0 to initial_prompt_tokens ({self.initial_prompt_tokens})"
            raise refusal("shared_prefix_tokens", self.shared_prefix_tokens, rule)
        if not self.turns:
            raise refusal("turns", self.turns)
        for index, turn in enumerate(self.turns[:-1]):
            if turn.env is None:
                raise InputError(
                    f"turns[{index}].env is null; only the last turn (here turns[{len(self.turns) - 1}]) "
                    "may be without an environment stage"
                )
        stated = _stated_quality(self.meta.get("env_duration"))
        if stated is not None:
            msgspec.structs.force_setattr(self, "turns", tuple(_with_quality(self.turns, stated)))

    def prompt_tokens(self) -> list[int]:
        """Tokens of each turn's prompt: prompt n = prompt n-1 + kept of reply n-1 + response n-1."""
        prompts = []
        prompt = self.initial_prompt_tokens
        for turn in self.turns:
            prompts.append(prompt)
            prompt += turn.kept + (turn.env.response_tokens if turn.env is not None else 0)
        return prompts

    @property
    def final_context_tokens(self) -> int:
        """KV entries the trajectory holds at its end: the last prompt and the last reply."""
        return self.prompt_tokens()[-1] + self.turns[-1].output_tokens


def _check_name(field: str, name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # a lone surrogate
        size = 0
    if not 1 <= size <= MAX_NAME_BYTES:
        raise refusal(field, name)


def _stated_quality(statement: object) -> DurationQuality | None:
    word = re.match(r"exact|derived|estimated", statement) if isinstance(statement, str) else None
    return cast(DurationQuality, word.group()) if word else None


def _with_quality(turns: Iterable[Turn], quality: DurationQuality) -> Iterable[Turn]:
    for turn in turns:
        env = turn.env
        if env is None or env.duration_s is None or env.duration_quality is not None:
            yield turn
            continue
        env = Environment(env.duration_s, env.response_tokens, env.n_calls, env.kind, quality)
        yield Turn(turn.output_tokens, turn.kept_tokens, turn.infer_s, env)
