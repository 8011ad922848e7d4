"""What is off or notable about an engine's pools, one sentence each."""

from dataclasses import dataclass
from typing import Literal

from coresched.capacity.engines import TITLES, VERSIONS
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.priced import Priced, tested

Status = Literal["ok", "note", "off"]


@dataclass(frozen=True)
class Finding:
    """One line of the examination: what agrees ("ok"), is worth knowing ("note"), should change ("off")."""

    status: Status
    topic: str
    text: str


def examine(
    observed: ObservedPools, priced: Priced | None = None, concurrency: int | None = None
) -> tuple[Finding, ...]:
    """Everything found: the release, then the engine's own, what is off first.

    ``priced`` adds the comparison with the model's dimensions, ``concurrency`` that with the trajectories to
    run at once on this engine, shared evenly by its ranks.
    """
    # Here, since both build on the class above.
    from coresched.capacity.observed.sglang_findings import sglang_findings
    from coresched.capacity.observed.vllm_findings import vllm_findings

    engine = sglang_findings if observed.engine == "sglang" else vllm_findings
    found = [_release(observed), *engine(observed, priced, concurrency)]
    return tuple(sorted(found, key=lambda finding: ("off", "note", "ok").index(finding.status)))


def _release(observed: ObservedPools) -> Finding:
    release = f"{TITLES[observed.engine]} {VERSIONS[observed.engine]}"
    known = tested(observed)
    if known:
        return Finding("ok", "version", f"{release}, which the arithmetic is tested against")
    if known is None:
        return Finding("note", "version", f"not in the log; the arithmetic is tested against {release}")
    return Finding(
        "note",
        "version",
        f"{observed.version} runs; the arithmetic is tested against {release}, so numbers may differ",
    )


def per_rank(observed: ObservedPools, concurrency: int) -> int:
    """The largest share of one rank."""
    return -(-concurrency // observed.ranks)


def smaller_states(priced: Priced) -> list[Finding]:
    """That bf16 states would do, where they are float32."""
    half = priced.with_bf16_states
    if half is None:
        return []
    flag = "--mamba-ssm-dtype" if half.engine == "sglang" else "--mamba-ssm-cache-dtype"
    return [
        Finding(
            "note",
            "state dtype",
            f"a float32 state costs {priced.footprint.state_bytes:,} bytes, a bfloat16 one "
            f"{half.state_bytes:,}: {flag} bfloat16, if the model's accuracy allows",
        )
    ]
