"""The batches that policies are compared on, each with the workers and the settings of the paper's method."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import floor
from typing import Final

from msgspec.structs import replace as changed

from bench.paper.experiments import WORKER_MODEL, batch, published
from coresched.capacity.profile import profile_of
from coresched.lab.ladder import Choices, mechanism_ladder
from coresched.lab.plans import by_paper
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.generator import generate
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory

WORKERS: Final = (1, 2, 4)
ATLAS_ENVIRONMENTS: Final = {1: 3, 2: 5, 4: 12}
"""C_E by workers: the published two, and one that leaves an order something to win."""
ATLAS_ADMITTED: Final = 50
TIGHT_MODEL: Final = "h20-tp4-hybrid-tight"
GENERATED: Final = {"generated swe": ("swe", 400), "generated terminal": ("terminal", 600)}
"""Profile of the generator, and samples."""
PRESSURE: Final = 1.5
"""Of the samples that fit into the memory of the generated cases' workers, how many are admitted."""
RECORDED_SHARE: Final = 1 / 3
"""Of a recorded batch, what the memory of all workers holds, as on the paper's largest: 98 of 289."""
RECORDED_PRESSURE: Final = 2
"""C_S over C with one worker, as on the same: 196 over 98."""
EXPECTATION_NOISE: Final = 0.6
"""Sigma of what policies that go by expected lengths expect: a rank correlation of about 0.5."""


@dataclass(frozen=True)
class Source:
    """Where trajectories come from; ``files`` are of a recorded batch, which is the same for every seed."""

    name: str
    files: tuple[str, ...] = ()
    absent_environment_s: float | None = None


@dataclass(frozen=True)
class Case:
    """A batch, its workers, and the settings of the paper's method on them."""

    name: str
    source: Source
    model: WorkerModel
    settings: RunSettings


@cache
def trajectories(source: Source, seed: int) -> list[Trajectory]:
    """The batch of a seed. Raises InputError for a file that holds none."""
    if source.files:
        return load_trajectories(source.files)
    if source.name in GENERATED:
        profile, samples = GENERATED[source.name]
        return list(generate(profile, samples, seed=seed + 1))
    return batch(source.name, seed)


def workload(source: Source, page_tokens: int, seed: int) -> Workload:
    """The same for a run. Raises InputError for durations that are absent, see `build_workload`."""
    return build_workload(
        trajectories(source, seed),
        page_tokens=page_tokens,
        seed=seed,
        absent_environment_s=source.absent_environment_s,
    )


@cache
def shipped_cases() -> tuple[Case, ...]:
    """The paper's four workloads on one, two and four workers, then two generated ones with little memory."""
    return tuple(_shipped())


def _shipped() -> Iterator[Case]:
    model = load_worker_model(WORKER_MODEL)
    for name in ("SWE", "BFCL", "WideSearch"):
        for workers in WORKERS:
            yield Case(f"{name}, W {workers}", Source(name), model, _published(name, workers))
    for workers in WORKERS:
        limit = ATLAS_ENVIRONMENTS[workers]
        settings = paper_method(
            workers, ATLAS_ADMITTED, 0.14, label_capacity=ATLAS_ADMITTED, environment_concurrency=limit
        )
        yield Case(f"MCP-Atlas, W {workers}, C_E {limit}", Source("MCP-Atlas"), model, settings)
    tight = load_worker_model(TIGHT_MODEL)
    for name in GENERATED:
        source = Source(name)
        planned = mechanism_ladder(trajectories(source, 0), tight, Choices(workers=2))[-1].settings
        admitted = round(PRESSURE * planned.sample_concurrency)
        yield Case(
            f"{name}, W 2",
            source,
            tight,
            replace(
                planned,
                name="paper's method",
                sample_concurrency=admitted,
                expectation_noise=EXPECTATION_NOISE,
            ),
        )


def recorded_cases(
    files: Sequence[str], environment_concurrency: int | None, absent_environment_s: float | None
) -> Iterator[Case]:
    """Each file a batch of its own, on one worker and on two.

    Their memory is cut so that it holds RECORDED_SHARE of the batch, where it would hold more; r, C_A and C
    are the paper's formulas'. Raises InputError for a file that cannot be run.
    """
    full = load_worker_model(WORKER_MODEL)
    for number, file in enumerate(files, 1):
        source = Source(f"recorded {number}", (file,), absent_environment_s)
        found = trajectories(source, 0)
        workload(source, full.page_tokens, 0)  # says what is missing before anything runs
        for workers in (1, 2):
            model = _cut(full, found, workers)
            point = by_paper(profile_of(found), model)
            admitted = point.concurrency * (RECORDED_PRESSURE if workers == 1 else workers)
            settings = paper_method(
                workers,
                min(admitted, len(found)),
                point.ratio,
                label_capacity=point.concurrency,
                environment_concurrency=environment_concurrency,
            )
            yield Case(f"{source.name}, W {workers}", source, model, settings)


def paper_method(
    workers: int,
    sample_concurrency: int,
    state_ratio: float,
    *,
    label_capacity: int,
    environment_concurrency: int | None = None,
) -> RunSettings:
    """RP, LBCH and CAAS with the paper's parameters."""
    return RunSettings(
        name="paper's method",
        workers=workers,
        sample_concurrency=sample_concurrency,
        environment_concurrency=environment_concurrency,
        state_ratio=state_ratio,
        label_capacity=label_capacity,
        worker_policy="routing-prefix",
        routing="lbch",
        environment_policy="caas",
        expectation_noise=EXPECTATION_NOISE,
    )


def plain(settings: RunSettings) -> RunSettings:
    """The same limits and pools under the defaults of engine, router and executor."""
    return replace(
        settings,
        name="plain defaults",
        worker_policy="fcfs",
        routing="cache-aware",
        environment_policy="fcfs",
    )


def _published(name: str, workers: int) -> RunSettings:
    """One worker: the C_S with RP's best makespan in Figure 6; more: C_S per worker as in Figure 8."""
    if workers == 1:
        found = published()["figure6"][name]
        makespans = found["makespans_by_policy"]["routing-prefix"]
        concurrency = found["concurrencies"][makespans.index(min(makespans))]
    else:
        found = published()["figure8"][name]
        concurrency = found["concurrency"] * workers // 2
    labels = published()["reference_concurrency"][name]
    return paper_method(workers, concurrency, found["ratio"], label_capacity=labels)


def _cut(model: WorkerModel, found: Sequence[Trajectory], workers: int) -> WorkerModel:
    """Less memory, down to what the largest request needs at the paper's r."""
    profile = profile_of(found)
    most = max(
        prompt + turn.output_tokens
        for one in found
        for prompt, turn in zip(one.prompt_tokens(), one.turns, strict=True)
    )
    ratio = by_paper(profile, model).ratio
    share = len(found) * RECORDED_SHARE / workers * (profile.mean_final_tokens + model.request_state_tokens)
    least = (most + 2 * model.page_tokens) * (1 + ratio)
    tokens = min(model.pool_tokens, floor(max(share, least)) + 1)
    return changed(model, name=f"{model.name}, {tokens} tokens", pool_tokens=tokens)
