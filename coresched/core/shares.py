"""The largest part of a hash ring that a worker may have where its weight comes from outside."""

LARGEST_WEIGHT = 1000
"""Of a worker, relative to the others."""

LARGEST_SHARE = 1 << 20
"""Points on the ring of one worker: about a second of work for the server that adds it."""


def check_share(weight: float, virtual_nodes: int) -> None:
    """Raises ValueError, naming the largest weight, over LARGEST_SHARE.

    A weight above LARGEST_WEIGHT is the ring's to refuse, unless this limit is the lower of the two.
    """
    if min(weight, LARGEST_WEIGHT) * virtual_nodes > LARGEST_SHARE:
        raise ValueError(
            f"weight must be at most {LARGEST_SHARE / virtual_nodes:g} with {virtual_nodes} virtual nodes, "
            f"got {weight:g}"
        )
