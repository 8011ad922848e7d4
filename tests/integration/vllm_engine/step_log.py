"""What each pass of an engine's scheduler found and did, for a check by someone else."""

from typing import Any

from coresched_vllm.virtual.engine import VirtualEngine

Step = dict[str, Any]


def logged(engine: VirtualEngine) -> list[Step]:
    """A list that gets an entry for each pass from now on.

    ``arrived`` is the ordered part of the queue before the pass, ``hits`` what a query would find for each of
    it, ``order`` the same requests in the order that vLLM's pass was given, ``first`` those before them, and
    ``admitted`` those that began to run, in order. ``touched`` tells whether the ordering changed anything of
    the block pool or the statistics. ``held back`` are those that vLLM was not given, ``running`` those that
    ran before the pass, and ``computed`` what is computed after it of each that runs, in tokens.
    """
    steps: list[Step] = []
    scheduler = engine.scheduler
    ordering, schedule, order = scheduler.ordering, scheduler.schedule, scheduler.ordering.order
    held_back = ordering.held_back

    def logged_order(requests: list[Any]) -> None:
        step: Step = {
            "arrived": [[request.request_id, request.session_id] for request in requests],
            "hits": {request.request_id: scheduler._prefix_hit(request) for request in requests},
            "running": [request.request_id for request in scheduler.running],
        }
        before = pool_state(scheduler)
        order(requests)
        step["touched"] = pool_state(scheduler) != before
        step["order"] = [request.request_id for request in requests]
        step["first"] = engine.waiting()[: len(scheduler.waiting) - len(requests)]
        steps.append(step)

    def logged_held_back(preempted: list[Any], ordered: list[Any], running: list[Any]) -> int:
        count: int = held_back(preempted, ordered, running)
        steps[-1]["held back"] = [request.request_id for request in ordered[len(ordered) - count :]]
        return count

    def logged_schedule(*args: Any, **kwargs: Any) -> Any:
        waiting = {request.request_id for request in scheduler.waiting}
        output = schedule(*args, **kwargs)
        steps[-1]["admitted"] = [name for name in output.num_scheduled_tokens if name in waiting]
        steps[-1]["preempted"] = sorted(output.preempted_req_ids or ())
        steps[-1]["computed"] = {
            request.request_id: [request.session_id, request.num_computed_tokens, request.num_prompt_tokens]
            for request in scheduler.running
        }
        return output

    ordering.order, scheduler.schedule = logged_order, logged_schedule
    ordering.held_back = logged_held_back
    return steps


def pool_state(scheduler: Any) -> tuple[Any, ...]:
    """The free blocks in their order, every block's count of users, and what vLLM counts of its cache."""
    pool, stats = scheduler.kv_cache_manager.block_pool, scheduler.kv_cache_manager.prefix_cache_stats
    return (
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        [block.ref_cnt for block in pool.blocks],
        (stats.requests, stats.queries, stats.hits),
    )
