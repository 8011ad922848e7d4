"""What the sidecar shows of itself: GET /coresched/status, and Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coresched.metrics.families import counters, histogram_family
from coresched.sidecar.trajectories import Trajectories
from coresched.sidecar.trajectory import Trajectory

STATES = ("waiting", "admitted", "inference", "queued", "environment")


def status(trajectories: Trajectories, settings: dict[str, Any]) -> dict[str, Any]:
    """Everything as JSON: what was set, counts, who waits, and each trajectory. Times in seconds."""
    progress = trajectories.batch.progress
    return {
        "settings": settings,
        "counts": trajectories.counts.numbers(),
        "trajectories_by_state": _by_state(trajectories),
        "calls_outstanding": sum(1 for _ in trajectories.pending.outstanding()),
        "makespan_s": None if progress is None else progress.makespan_s,
        "trajectories": [_shown(trajectory) for trajectory in trajectories.lives],
    }


def _shown(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "label": trajectory.label,
        "sample": trajectory.sample.id,
        "state": trajectory.state,
        "waiting_s": round(trajectory.waiting_s, 3),
        "admission_wait_s": round(trajectory.admission_wait_s, 3),
        "environment_queue_s": round(trajectory.environment_queue_s, 3),
        "turns": trajectory.turns,
        "stages": trajectory.stages,
        "calls": trajectory.calls,
        "calls_pending": [
            {"name": call.asked.name, "progress": call.progress.name.lower()}
            for call in trajectory.calls_pending
        ],
    }


def _by_state(trajectories: Trajectories) -> dict[str, int]:
    states = [trajectory.state for trajectory in trajectories.lives]
    return {state: states.count(state) for state in (*STATES, "ended")}


class SidecarCollector:
    """`collect` reads what is counted anyway; it must run on the event loop of the sidecar."""

    def __init__(self, trajectories: Trajectories) -> None:
        self._trajectories = trajectories
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        counts = self._trajectories.counts
        present = GaugeMetricFamily(
            "coresched_sidecar_trajectories", "Trajectories by where they stand.", labels=("state",)
        )
        states = _by_state(self._trajectories)
        for state in STATES:
            present.add_metric((state,), states[state])
        yield present
        yield CounterMetricFamily(
            "coresched_sidecar_ended_trajectories", "Trajectories that ended.", value=states["ended"]
        )
        yield counters(
            "coresched_sidecar_events",
            "Calls, replies, stages and turns by what became of them.",
            "kind",
            counts.numbers(),
        )
        yield histogram_family(
            "coresched_sidecar_admission_seconds", "Waits for admission.", counts.admission_s
        )
        yield histogram_family(
            "coresched_sidecar_environment_queue_seconds",
            "Waits for an environment slot that was granted.",
            counts.queue_s,
        )
        yield from self._process.collect()
