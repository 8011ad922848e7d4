"""SGLang's real scheduler under a policy, in virtual time, for the scenarios of plugin_scenarios.py."""

import logging
from typing import Any

from coresched_simdevice.virtual import engine as engine_module
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.finished import Finished

Facts = dict[str, Any]

SMALL = {
    "context_length": 16_384,
    "max_total_tokens": 200_000,
    "max_running_requests": 2,
    "max_mamba_cache_size": 32,
    "mamba_max_states_per_path": 1,
}


BEHIND = (("cold", 60, "cold"), ("none", 61, None), ("t1-second", 1, "t1"), ("t0-second", 0, "t0"))
"""Requests that wait for one that runs, in their order of arrival: names, trajectories and labels."""


class Run:
    """An engine and the requests it gets; tokens of a trajectory are told apart by its number."""

    def __init__(self, model: str, policy: str = "routing-prefix", **server_args: Any) -> None:
        self.log: list[str] = []
        lines = logging.Handler()
        lines.emit = lambda record: self.log.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("coresched_sglang").addHandler(lines)
        logging.getLogger("coresched_sglang").setLevel(logging.INFO)
        arguments = {**SMALL, "model_path": model, "schedule_policy": policy, **server_args}
        self.engine = VirtualEngine({name: value for name, value in arguments.items() if value is not None})
        self.policy = self.engine.scheduler.policy
        self.finished: list[Finished] = []

    def prompt(self, trajectory: int, tokens: int) -> list[int]:
        return [3 + (trajectory * 7919 + place * 31) % 50_000 for place in range(tokens)]

    def submit(
        self,
        name: str,
        trajectory: int,
        tokens: int,
        label: Any = None,
        output: int = 4,
        at: float | None = None,
        reserve_output: bool = True,
        **fields: Any,
    ) -> None:
        """As the engine's, and with ``fields`` of SGLang's message set."""

        def generate_request(*arguments: Any) -> Any:
            message = original(*arguments)
            for field, value in fields.items():
                setattr(message, field, value)
            return message

        original, engine_module.generate_request = engine_module.generate_request, generate_request
        try:
            self.engine.submit(
                name, self.prompt(trajectory, tokens), output, label, at, reserve_output=reserve_output
            )
        finally:
            engine_module.generate_request = original

    def finish(self) -> list[str]:
        """Let all end; the names in the order in which they were first admitted."""
        ended = self.engine.advance()
        self.finished += ended
        admitted = [one for one in ended if one.started_s is not None]
        return [one.request_id for one in sorted(admitted, key=lambda one: one.started_s or 0.0)]

    def warm(self, trajectories: int, tokens: int = 1_000) -> None:
        """A first turn of so many trajectories, labelled t0, t1 and so on."""
        for number in range(trajectories):
            self.submit(f"warm-{number:02d}", number, tokens, f"t{number}")
        self.finish()

    def facts(self, **more: Any) -> Facts:
        counts = self.policy.ordering.counts()
        return {
            "passes": counts.passes,
            "entered": self.policy.ordering._entered,
            "queries": counts.queries,
            "hits": counts.hits,
            "misses": counts.misses,
            "unlabelled": counts.unlabelled,
            "refused labels": counts.refused_labels,
            "labels": self.policy.ordering._policy.labels(),
            "cached": {one.request_id: one.cached_tokens for one in self.finished},
            "aborted": [one.request_id for one in self.finished if one.aborted],
            "retractions": {one.request_id: one.retractions for one in self.finished if one.retractions},
            "outputs": {one.request_id: len(one.output_ids) for one in self.finished},
            "log": self.log,
            **more,
        }


def cold_and_warm(run: Run) -> list[str]:
    """One request runs; a cold one, one without a label, and two warm ones come, in this order."""
    run.submit("running", 50, 500, "running", output=400)
    for name, trajectory, label in BEHIND:
        run.submit(name, trajectory, 2_000, label, at=run.engine.now_s + 0.01)
    return run.finish()
