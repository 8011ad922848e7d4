"""Every policy beside the paper's method, and how far all are from what is possible."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from bench.results_page.markdown import (
    command_block,
    details,
    image,
    interval_text,
    is_sure,
    listed,
    minutes,
    recorded_text,
    short,
    table,
)
from bench.results_page.plots import Mark, Row, rows_plot
from bench.results_page.scales import linear_scale, percent_scale
from bench.rivals.kinds import PAPER, PLAIN
from coresched.lab import policies

Rows = Sequence[Mapping[str, Any]]

HEADS: Final = {
    "routing": "Routing: which worker serves a turn",
    "worker": "Order inside a worker",
    "eviction": "Eviction: which idle trajectory a worker gives up",
    "pools": "Pools: how memory is split",
    "environment": "Order of environment jobs",
    "admission": "Admission: which sample begins next",
}


BEST: Final = "best one change"
ORACLES: Final = frozenset((one.kind, one.name) for one in policies.POLICIES if ": an oracle" in one.rule)
"""What no scheduler could do; its distance is of interest, but it is nobody's rival."""
UNDER: Final = {PAPER: "In the paper's method", PLAIN: "Under plain defaults"}

LEFT_OUT: Final = (
    "Not there, as the rule could not be found precisely, or rests on what the simulator does not have: "
    "vllm-router's kv_aware and the scorers of llm-d and Dynamo (an engine's cache events), Ray's "
    "PrefixCacheAffinityRouter, AIBrix's gates and HAProxy's hash-balance-factor; Preble's rebalancing, "
    "DualMap's moves of queued requests, Marconi's choice of what to keep; tiers in host memory. Policies "
    "that go by expected lengths expect the true length times a lognormal factor of sigma 0.6, but for the "
    "oracles, which know it."
)


def groups(rows: Rows) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The rows of each kind and base."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["kind"], row["base"]), []).append(row)
    return found


def plots(rivals: Mapping[str, Any], better: Mapping[str, Any]) -> dict[str, str]:
    """One of each kind and base, and the distance to the limit."""
    drawn = {
        _name(kind, base): _policies(kind, base, rows)
        for (kind, base), rows in groups(rivals["rows"]).items()
    }
    return {**drawn, "limit": _limit(rivals["rows"], better["rows"])}


def text(rivals: Mapping[str, Any], better: Mapping[str, Any]) -> str:
    parts = [
        "## Rivals",
        "Every policy that `coresched simulate --list-policies` names, on the same batches, one kind "
        "varied at a time. The paper's method is RP, LBCH and CAAS at the paper's settings; *plain "
        "defaults* are FCFS behind a cache-aware router at the same C_S and r. What each policy is "
        "simplified to, and its source, stands in its file under `coresched/lab/simulator/`.",
        command_block(rivals),
        *recorded_text(rivals),
        "Tables: how much longer (+) or shorter (-) the makespan is than with the policy of the first row, "
        "in percent, the median over seeds; bold where the 95 % interval of that median leaves no doubt of "
        "the sign. The first row has minutes and, as everywhere on this page, (x the lower bound). In "
        "plots a filled dot is a sure difference.",
    ]
    head = ""
    for (kind, base), rows in groups(rivals["rows"]).items():
        if kind != head:
            parts.append(f"### {HEADS.get(kind, kind)}")
            head = kind
        parts += _kind(kind, base, rows)
    parts.append(LEFT_OUT)
    others = [f"{system}: {missing} (arXiv:{number})" for system, missing, number in policies.LEFT_OUT]
    parts.append("Nor are, of other kinds:\n\n" + "\n".join(f"- {one}" for one in others))
    return "\n\n".join([*parts, *_limit_text(rivals["rows"], better["rows"])])


def _kind(kind: str, base: str, rows: Rows) -> Iterator[str]:
    cases = list(dict.fromkeys(row["case"] for row in rows))
    reference = rows[0]["reference"]
    by_place = {(row["policy"], row["case"]): row for row in rows}
    policies = _ranked(rows)
    yield f"{UNDER[base]}, against {reference}:"
    yield image(_name(kind, base), f"{UNDER[base]}, each policy against {reference}")
    first = [reference, *(minutes(by_place[reference, case]) for case in cases)]
    others = [[policy, *(short(by_place[policy, case]["longer"]) for case in cases)] for policy in policies]
    yield table(["", *cases], [first, *others])
    yield "\n".join(_sentences(policies, by_place, cases, reference))
    full = [
        [
            row["case"],
            row["policy"],
            minutes(row),
            interval_text(row["longer"]) if row["longer"] else "",
            f"{row['cache_reuse'] * 100:.1f}",
        ]
        for row in rows
    ]
    heads = ["case", kind, "minutes", f"% against {reference}", "reuse, %"]
    yield details("With intervals and reuse", table(heads, full))


def _sentences(
    policies: Sequence[str],
    by_place: Mapping[tuple[str, str], Mapping[str, Any]],
    cases: Sequence[str],
    reference: str,
) -> Iterator[str]:
    """Who surely wins and loses where."""
    for word, sign in (("shorter", -1), ("longer", 1)):
        found = []
        for policy in policies:
            shares = [by_place[policy, case]["longer"] for case in cases]
            sure = sum(is_sure(share) and share["median"] * sign > 0 for share in shares)
            if sure:
                found.append(f"{policy} ({sure} of {len(cases)})")
        yield f"- Surely {word} than with {reference}: {listed(found)}."


def _ranked(rows: Rows) -> list[str]:
    """The policies but the reference, best median over the cases first."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row["longer"]:
            shares.setdefault(row["policy"], []).append(row["longer"]["median"])
    return sorted(shares, key=lambda policy: median(shares[policy]))


def _policies(kind: str, base: str, rows: Rows) -> str:
    marks: dict[str, list[Mark]] = {policy: [] for policy in _ranked(rows)}
    for row in rows:
        if share := row["longer"]:
            value = share["median"] * 100
            marks[row["policy"]].append(Mark(value, workload_of(row["case"]), is_sure(share)))
    shown = [Row(policy, tuple(found)) for policy, found in marks.items()]
    scale = percent_scale([mark.value for row in shown for mark in row.marks])
    title = f"{HEADS.get(kind, kind)}. {UNDER[base]}"
    axis = f"makespan against {rows[0]['reference']}, %: a dot a case"
    return rows_plot(title, axis, shown, scale)


def workload_of(case: str) -> str:
    """A case without its workers: what has one colour."""
    return case.partition(", ")[0]


def _name(kind: str, base: str) -> str:
    return f"{kind}-plain" if base == PLAIN else kind


def limits(rivals: Rows, better: Rows) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Of each case: plain defaults, the paper's method, the best one change, all parts."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rivals:
        of_case = found.setdefault(row["case"], {})
        if row["longer"] is None:
            of_case[row["base"]] = row
        elif row["base"] == PAPER and (row["kind"], row["policy"]) not in ORACLES:
            best = of_case.get(BEST)
            if best is None or row["of_bound"] < best["of_bound"]:
                of_case[BEST] = row
    for row in better:
        if row["case"] in found and row["variant"] in ("all parts", "kept parts"):
            found[row["case"]][row["variant"]] = row
    return found


SHOWN: Final = (PLAIN, PAPER, BEST, "all parts", "kept parts")


def _limit(rivals: Rows, better: Rows) -> str:
    rows = [
        Row(case, tuple(Mark(of_case[name]["of_bound"], name) for name in SHOWN if name in of_case))
        for case, of_case in limits(rivals, better).items()
    ]
    most = min(4.0, max(mark.value for row in rows for mark in row.marks))
    return rows_plot(
        "Distance to the limit",
        "makespan over its lower bound (beyond 4 at the edge)",
        rows,
        linear_scale(1.0, most),
        at=1.0,
    )


def _limit_text(rivals: Rows, better: Rows) -> Iterator[str]:
    found = limits(rivals, better)
    columns = [name for name in SHOWN if any(name in of_case for of_case in found.values())]
    yield "### The distance to the limit"
    yield (
        "The lower bound is the largest of: the longest trajectory alone, environment work over C_E, and "
        "inference work with perfect reuse over the workers. Nothing can be below 1; with several workers "
        "the bound is loose, as it lets all of them keep full batches to the end. *best one change* is the "
        "one policy, of any kind but no oracle, that brings the paper's method closest. The last columns "
        "are of `bench better`, on other seeds."
    )
    yield image("limit", "Makespan over its lower bound, by case")
    rows = []
    for case, of_case in found.items():
        cells = []
        for name in columns:
            row = of_case.get(name)
            text = "" if row is None else minutes(row)
            cells.append(f"{text}, {row['policy']}" if row is not None and name == BEST else text)
        rows.append([case, *cells])
    yield table(["case, minutes", *columns], rows)
