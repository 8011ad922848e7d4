"""Which place on the ring a replica has: a slot, which its replacement takes over."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def assign_slots(
    known: Mapping[str, int], replicas: Collection[str], ranks: Mapping[str, int]
) -> dict[str, int]:
    """The slot, 0 or more, of each replica, by unique id.

    `ranks` are those of Serve's controller, which are the same for whoever asks; they are the slots if they
    have a different one for each of the replicas. Otherwise replicas keep the slots in `known`, and others
    take the lowest free ones in the order of their ids, which another router may do in another way.
    """
    if has_ranks(replicas, ranks):
        return {replica: ranks[replica] for replica in replicas}
    slots = {replica: known[replica] for replica in replicas if replica in known}
    taken = set(slots.values())
    free = (slot for slot in range(len(taken) + len(replicas)) if slot not in taken)
    for replica in sorted(replicas):
        if replica not in slots:
            slots[replica] = next(free)
    return slots


def has_ranks(replicas: Collection[str], ranks: Mapping[str, int]) -> bool:
    """Whether each of the replicas has a rank of its own. Serve answers 0 for all where it lost count."""
    found = {ranks[replica] for replica in replicas if replica in ranks}
    return len(found) == len(replicas)


def remembered(known: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The slots of now, and those of replicas that are gone, as long as no other has them."""
    taken = set(now.values())
    return {**{replica: slot for replica, slot in known.items() if slot not in taken}, **now}
