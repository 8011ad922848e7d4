"""How a configuration is set up: the commands to type, and the lines for a harness."""

from collections.abc import Collection
from dataclasses import dataclass
from shlex import quote
from typing import Final

from coresched.lab.simulator.settings import RunSettings

AT_HOME_BOUND: Final = 1e6
"""A load bound that no load exceeds, so that every trajectory stays at home."""
SGLANG_ROUTER: Final = {
    "cache-aware": "cache_aware",
    "power-of-two": "power_of_two",
    "round-robin": "round_robin",
}
"""SGLang's own router, and what it calls its policies."""


@dataclass(frozen=True)
class Step:
    """One thing to do, and the text to do it with."""

    what: str
    text: str


def recipe(settings: RunSettings, changed: Collection[str], history: str | None = None) -> list[Step]:
    """What to do for the parts that are changed, from the engine to the harness. Flags are SGLang's.

    ``history`` is the file that admission by history goes by.
    """
    steps = []
    if {"pools", "order"} & set(changed):
        steps.append(Step("on each worker", _worker(settings)))
    if "routing" in changed:
        steps.append(_router(settings))
    if {"admission", "environment"} & set(changed):
        steps.append(Step("in the harness", _harness(settings, history)))
        steps.append(
            Step("or, for the adapters of harnesses, in the environment", _environment(settings, history))
        )
    return steps


def _worker(settings: RunSettings) -> str:
    flags = f"--mamba-full-memory-ratio {settings.state_ratio:.4g} --schedule-policy {settings.worker_policy}"
    command = f"python -m sglang.launch_server --model-path MODEL {flags}"
    if settings.worker_policy == "routing-prefix":
        return f"CORESCHED_LABEL_CAPACITY={settings.label_capacity} {command}"
    return command


def _router(settings: RunSettings) -> Step:
    front = "in front of the workers"
    urls = [f"http://WORKER{number}:30000" for number in range(min(settings.workers, 3))]
    if settings.workers > 3:
        urls.append("...")
    if settings.routing in ("lbch", "consistent-hash", "sticky-bounded"):
        bound = AT_HOME_BOUND if settings.routing == "consistent-hash" else settings.load_bound
        router = " --router sticky-bounded" if settings.routing == "sticky-bounded" else ""
        workers = " ".join(url if url == "..." else f"--worker {url}" for url in urls)
        return Step(
            front, f"coresched gateway --listen 127.0.0.1:8080 {workers}{router} --load-bound {bound:g}"
        )
    if settings.routing == "sticky-least-loaded":
        return Step(
            f"{front} (no router of coresched: the label of each turn must be its X-Session-ID header, and "
            "the end of a trajectory POST /finish_session?session_id=LABEL)",
            f"vllm-router --port 8080 --policy sticky_least_loaded --worker-urls {' '.join(urls)}",
        )
    if settings.routing in SGLANG_ROUTER:
        policy = SGLANG_ROUTER[settings.routing]
        return Step(
            f"{front} (no router of coresched)",
            f"python -m sglang_router.launch_router --port 8080 --policy {policy} "
            f"--worker-urls {' '.join(urls)}",
        )
    return Step(front, f"a router of the kind {settings.routing}")


def _harness(settings: RunSettings, history: str | None) -> str:
    options = [f"sample_concurrency={settings.sample_concurrency}"]
    if settings.admission_policy == "longest-expected-first":
        options += [f'admission_policy="{settings.admission_policy}"', f"history={history or 'HISTORY'!r}"]
    if settings.environment_concurrency is not None:
        options.append(f"environment_concurrency={settings.environment_concurrency}")
        options.append(f'environment_policy="{settings.environment_policy}"')
        if settings.environment_policy == "caas":
            options += [f"band_s={settings.band_s:g}", f"bucket_s={settings.bucket_s:g}"]
    return f"coresched.Batch({', '.join(options)})"


def _environment(settings: RunSettings, history: str | None) -> str:
    variables = {"SAMPLE_CONCURRENCY": f"{settings.sample_concurrency}"}
    if settings.admission_policy == "longest-expected-first":
        variables |= {"ADMISSION_POLICY": settings.admission_policy, "HISTORY": quote(history or "HISTORY")}
    if settings.environment_concurrency is not None:
        variables["ENVIRONMENT_CONCURRENCY"] = f"{settings.environment_concurrency}"
        variables["ENVIRONMENT_POLICY"] = settings.environment_policy
        if settings.environment_policy == "caas":
            variables |= {"BAND_S": f"{settings.band_s:g}", "BUCKET_S": f"{settings.bucket_s:g}"}
    return " ".join(f"CORESCHED_{name}={value}" for name, value in variables.items())
