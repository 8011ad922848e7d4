"""Scheduling passes as a run of routing-prefix leaves them, without an engine."""

from random import Random

from coresched_simdevice.virtual.passes import Asked, PrefixPass, Queued

from coresched.core.prefix import RoutingPrefixPolicy, Waiting


def recorded_run(
    seed: int, label_capacity: int, passes: int = 40, labels: int = 6, returns: float = 0.1
) -> list[PrefixPass]:
    """Random arrivals and admissions under the compiled policy. A share ``returns`` of those waits again."""
    random = Random(seed)
    policy = RoutingPrefixPolicy(label_capacity)
    queue: list[tuple[Queued, Waiting]] = []
    entered = 0
    recorded = []
    for _ in range(passes):
        for _ in range(random.randrange(4)):
            entered += 1
            label = None if random.random() < 0.1 else f"label {random.randrange(labels)}"
            queue.append((Queued(f"r{entered}", label, entered), Waiting(f"r{entered}", label, entered)))
        waiting = tuple(seen for seen, _ in queue)
        known = tuple(policy.labels())
        asked: list[Asked] = []

        def prefix_hit(request: Waiting, asked: list[Asked] = asked) -> int:
            asked.append(Asked(request.id, random.choice((0, 64, 128))))
            return asked[-1].hit

        place = {id(held): (seen, held) for seen, held in queue}
        queue = [place[id(held)] for held in policy.order([held for _, held in queue], prefix_hit)]
        ordered = tuple(seen.id for seen, _ in queue)
        count = min(len(queue), random.randrange(3))
        admitted, queue = queue[:count], queue[count:]
        for seen, _ in admitted:
            policy.admitted(seen.label)
        queue += [one for one in admitted if random.random() < returns]
        recorded.append(
            PrefixPass(
                waiting=waiting,
                labels=known,
                asked=tuple(asked),
                ordered=ordered,
                admitted=tuple(seen.id for seen, _ in admitted),
                continued=(),
            )
        )
    return recorded
