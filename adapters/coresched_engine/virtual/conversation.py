"""The tokens of a trajectory: made of a seed, and growing turn by turn as an agent's prompt does."""

from array import array
from random import Random

from coresched.trajectory.schema import Trajectory


class Conversation:
    """One trajectory's next prompt. Trajectories of a group begin with the same tokens; all else differs.

    Tokens are ids below ``vocabulary``. A reply of which the trajectory keeps less than all loses its
    beginning, where the reasoning is.
    """

    def __init__(self, trajectory: Trajectory, seed: int, vocabulary: int) -> None:
        self._trajectory = trajectory
        self._vocabulary = vocabulary
        self._random = Random(f"{seed} trajectory {trajectory.id}")
        self.turn = 0
        """The turn whose prompt `prompt` is, from 0."""
        shared = trajectory.shared_prefix_tokens
        self.prompt = self._draw(Random(f"{seed} group {trajectory.group!r} of {shared}"), shared)
        self.prompt += self._draw(self._random, trajectory.initial_prompt_tokens - shared)

    @property
    def ended(self) -> bool:
        return self.turn == len(self._trajectory.turns)

    def answered(self, reply: "array[int]") -> None:
        """Go on to the next turn, whose prompt has the kept part of ``reply`` and the response."""
        turn = self._trajectory.turns[self.turn]
        self.turn += 1
        # A copy: the engine holds the prompt that it was given.
        self.prompt = self.prompt + reply[len(reply) - turn.kept :]
        if turn.env is not None:
            self.prompt += self._draw(self._random, turn.env.response_tokens)

    def _draw(self, random: Random, count: int) -> "array[int]":
        words = array("I", random.randbytes(count * array("I").itemsize))
        return array("q", (word % self._vocabulary for word in words))
