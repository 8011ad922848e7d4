"""How large a run is, and what each trajectory does: the same for the same seed, in whichever process."""

from __future__ import annotations

import random

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`grace_s` is that of the harness processes. Stages take milliseconds, so that thousands pass."""

    processes: int
    samples: int
    workers: int
    sample_concurrency: int
    environment_concurrency: int
    resident_concurrency: int
    grace_s: float
    seed: int
    turns: tuple[int, int] = (2, 5)
    environment_s: tuple[float, float] = (0.05, 0.35)
    reply_tokens: tuple[int, int] = (10, 60)
    speed: float = 20.0

    def names(self) -> list[str]:
        return [f"traj-{number}" for number in range(self.samples)]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, and the environment stage after it; None after the last turn."""

    reply_tokens: int
    environment_s: float | None


def trajectory(settings: Settings, name: str) -> list[Stage]:
    """What the sample of that name does."""
    chance = random.Random(f"{settings.seed} {name}")
    turns = chance.randint(*settings.turns)
    return [
        Stage(
            reply_tokens=chance.randint(*settings.reply_tokens),
            environment_s=chance.uniform(*settings.environment_s) if turn < turns - 1 else None,
        )
        for turn in range(turns)
    ]
