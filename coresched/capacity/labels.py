"""The label capacity C_A of routing-prefix."""

from math import ceil
from typing import Final

LABELS_PER_TRAJECTORY: Final = 2


def label_capacity(sample_concurrency: int, workers: int) -> int:
    """C_A of one worker, if ``sample_concurrency`` trajectories (C_S) are in progress on all of them.

    The label set must have room for every trajectory whose cache is to live on the worker: the label that is
    pushed out is that of the one that was idle longest, which then comes back as if it were cold. On average
    these are C_S / W. It is twice that, as consistent hashing gives the fullest worker more, a turn that goes
    elsewhere leaves its label there, and a label stays after its trajectory has ended. In the simulator more
    gains nothing; it costs a prefix query a request at most.
    """
    return ceil(LABELS_PER_TRAJECTORY * sample_concurrency / workers)
