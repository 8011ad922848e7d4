"""A workload that the user describes in numbers, for when there is no trace yet."""

import math
import re
from dataclasses import dataclass
from statistics import NormalDist

from coresched.capacity.profile import Chain, Stage, WorkloadProfile
from coresched.errors import InputError

P90 = NormalDist().inv_cdf(0.9)
MOST_TURNS = 200_000


@dataclass(frozen=True)
class Quantity:
    """A count by its median and 90th percentile, log-normal between; both equal for a fixed one."""

    p50: float
    p90: float

    @classmethod
    def parse(cls, text: str, name: str) -> "Quantity":
        """Read "40" or "36/66" (median/90th percentile). Raises InputError naming ``name``."""
        if not isinstance(text, str):
            raise InputError(f'{name} is {text!r}; give text such as "40", or MEDIAN/P90 such as "36/66"')
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(?:/(\d{1,9}(?:\.\d{1,9})?))?", text.strip())
        if match is None:
            raise InputError(f'{name} is {text[:40]!r}; give a number, or MEDIAN/P90 such as "36/66"')
        p50, p90 = float(match[1]), float(match[2] or match[1])
        if not 0 < p50 <= p90:
            raise InputError(f"{name} is {text[:40]!r}; the median must be above 0 and at most the P90")
        return cls(p50, p90)

    def at(self, quantile: float) -> float:
        """The value below which a share ``quantile`` (0 to 1, exclusive) lies."""
        return self.p50 * math.exp(math.log(self.p90 / self.p50) / P90 * NormalDist().inv_cdf(quantile))

    @property
    def mean(self) -> float:
        """exp(mu + sigma^2 / 2) of the log-normal."""
        sigma = math.log(self.p90 / self.p50) / P90
        return self.p50 * math.exp(sigma * sigma / 2)


@dataclass(frozen=True)
class WorkloadSummary:
    """Turns a trajectory, and tokens: first prompt, output a turn, environment response a turn.

    Each is "N" or "MEDIAN/P90", such as "36/66". ``samples`` is the size of the batch; ``shared_prefix``
    tokens of the first prompt are the same in all. Raises InputError naming the field.
    """

    turns: str
    prompt: str
    output: str
    response: str
    samples: int = 200
    shared_prefix: int = 0

    def __post_init__(self) -> None:
        for name in ("turns", "prompt", "output", "response"):
            Quantity.parse(getattr(self, name), name)
        for name, least in (("samples", 1), ("shared_prefix", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} is {value!r}; it must be an integer of at least {least}")

    def profile(self) -> WorkloadProfile:
        """Chains at evenly spaced quantiles of turns and first prompt, in a mixed order, with mean lengths.

        Lengths within a chain average out over its turns, so each turn gets the mean of its quantity.
        Raises InputError when the shared prefix is longer than the shortest first prompt.
        """
        count = self.samples
        turns_in_all = count * Quantity.parse(self.turns, "turns").mean
        if turns_in_all > MOST_TURNS:
            raise InputError(
                f"turns is {self.turns} for {count} samples, about {turns_in_all:,.0f} turns in all; at most "
                f"{MOST_TURNS:,} can be replayed, so lower turns or samples"
            )
        grid = [(number + 0.5) / count for number in range(count)]
        # A stride coprime to the count mixes long and short, and pairs turns with unrelated prompts.
        strides = [step for step in (61, 59, 53, 47, 1) if math.gcd(step, count) == 1][:2]
        turn_count, first = Quantity.parse(self.turns, "turns"), Quantity.parse(self.prompt, "prompt")
        output = Quantity.parse(self.output, "output").mean
        response = Quantity.parse(self.response, "response").mean
        chains = []
        for number in range(count):
            turns = max(1, round(turn_count.at(grid[number * strides[0] % count])))
            prompt = max(1, round(first.at(grid[number * strides[-1] % count])))
            if prompt < self.shared_prefix:
                raise InputError(
                    f"shared_prefix is {self.shared_prefix}; some first prompts have {prompt} tokens, and it "
                    "cannot be longer than they are; lower it"
                )
            stages = tuple(
                Stage(round(prompt + (turn + 1) * output + turn * response), output, 0.0)
                for turn in range(turns)
            )
            chains.append(Chain(stages, None, self.shared_prefix))
        return WorkloadProfile(tuple(chains), timed=False)
