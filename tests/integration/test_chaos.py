"""Real harnesses, service and workers, killed at random: the small size of `python -m bench chaos`."""

from pathlib import Path

import msgspec

from bench.chaos.command import QUICK
from bench.chaos.run import run
from bench.chaos.settings import trajectory

SEED = 1


async def test_a_calm_run_does_each_thing_once(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUICK, processes=6, samples=60, seed=SEED)
    outcome = await run(settings, {}, tmp_path, limit_s=120)
    assert outcome.findings.all() == []
    measures = outcome.measures
    stages = [stage for name in settings.names() for stage in trajectory(settings, name)]
    assert measures.turns == len(stages)
    assert measures.environment_stages == len(stages) - settings.samples
    assert (measures.sessions, measures.readmissions, measures.failed_turns) == (6, 0, 0)
    # Demand was above both limits, so that keeping them meant something; and turns came home to their worker.
    assert measures.most_samples == settings.sample_concurrency
    assert measures.most_stages == settings.environment_concurrency
    assert measures.most_residents == settings.resident_concurrency
    assert measures.reuse > 0.3


async def test_nothing_is_lost_when_anything_may_be_killed_at_any_time(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUICK, seed=SEED)
    faults = {"service": 3, "worker": 2, "harness": 3, "stall": 1}
    outcome = await run(settings, faults, tmp_path, limit_s=180)
    assert outcome.findings.all() == []
    measures = outcome.measures
    assert (len(measures.service_restarts_s), measures.worker_restarts, measures.died) == (3, 2, 3)
    assert measures.lost_sessions >= 1  # that of the stalled process, which went on in another
    assert measures.readmissions > 0
    assert measures.failed_turns > 0
    assert measures.most_samples == settings.sample_concurrency
    assert measures.most_stages == settings.environment_concurrency
    assert measures.most_residents == settings.resident_concurrency
