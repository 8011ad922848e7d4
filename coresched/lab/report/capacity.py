"""A plan's picture: what each pool holds over the state ratio, and where the plan stands."""

from html import escape

from coresched.capacity.plan import Plan
from coresched.lab.report.html import html_page
from coresched.lab.report.series import Points
from coresched.lab.report.svg import Line, line_chart

STEPS = 240


def plan_page(plan: Plan) -> str:
    """C_kv(r) and C_state(r) of the mean trajectory, C(r) with the margin, and the chosen point."""
    kv, state = plan.cost.kv_bytes, plan.cost.running_state_bytes
    far = max(2.0 * plan.ratio, 1.5 * (state / kv), 0.1)
    ratios = [far * step / STEPS for step in range(1, STEPS + 1)]
    held_by_kv: Points = [(r, plan.pool_bytes / (1 + r) / kv) for r in ratios]
    held_by_state: Points = [(r, plan.pool_bytes * r / (1 + r) / state) for r in ratios] if state else []
    both = (
        [(r, min(a, b)) for (r, a), (_, b) in zip(held_by_kv, held_by_state, strict=True)]
        if state
        else held_by_kv
    )
    with_margin: Points = [(r, held / (1 + plan.margin)) for r, held in both]
    top = 1.6 * max(plan.concurrency, *(value for _, value in both))
    point: Points = [(plan.ratio, 0.0), (plan.ratio, float(plan.concurrency))]
    level: Points = [(0.0, float(plan.concurrency)), (plan.ratio, float(plan.concurrency))]
    lines = [
        Line("KV pool holds", _below(held_by_kv, top), "b2"),
        *([Line("state pool holds", _below(held_by_state, top), "b3")] if state else []),
        Line(f"both, less the {plan.margin:.0%} margin", _below(with_margin, top), "first"),
        Line(f"planned: r = {plan.ratio:.3g}, C = {plan.concurrency}", [*level, *reversed(point)], "last"),
    ]
    chart = line_chart(
        lines, x_label="r, state memory over KV memory", y_label="trajectories a worker", x_max=far, y_max=top
    )
    title = f"Capacity of {plan.footprint.model} on {plan.footprint.engine}"
    note = (
        "The curves are the continuous model of the mean trajectory at its final turn, with every "
        "state slot that "
        "a running request reserves. The planned point is the discrete peak replay of the whole "
        "workload, so it "
        "may lie above them (contexts grow, waiting trajectories hold one slot) or below (long ones meet)."
    )
    return html_page(title, [f"<h1>{escape(title)}</h1>", chart, f"<p class='note'>{note}</p>"])


def _below(points: Points, top: float) -> Points:
    return [(x, min(value, top)) for x, value in points]
