"""An SVG file of its own, in the colours of the reports, readable on a light and on a dark page."""

from dataclasses import dataclass, field
from html import escape
from typing import Final, Literal

COLOURS: Final = (
    "#2a78c2",
    "#d07a00",
    "#2c9a68",
    "#9a6bd0",
    "#159aa5",
    "#c8371f",
    "#8a939c",
    "#b0842a",
    "#d05a8f",
    "#6f9e1f",
    "#5c6bd6",
    "#a8623a",
)
"""Of groups, in their order."""
INK, RULE = "#7a848e", "#8a939c"
"""Text and rules: grey enough for both backgrounds."""

Anchor = Literal["start", "middle", "end"]


@dataclass
class Drawing:
    """Shapes in a frame of ``width`` times ``height``, in user units."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, *, anchor: Anchor = "start", bold: bool = False, turn: int = 0
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}{turned}>{escape(text)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = RULE, width: float = 1) -> None:
        opacity = ' opacity="0.35"' if colour == RULE and width <= 1 else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width:g}"{opacity}/>'
        )

    def dot(self, x: float, y: float, colour: str, *, filled: bool = True, radius: float = 4) -> None:
        fill = colour if filled else "none"
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{colour}" '
            'stroke-width="1.5"/>'
        )

    def curve(self, points: list[tuple[float, float]], colour: str, width: float = 1.6) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            'stroke-linejoin="round"/>'
        )

    def legend(self, x: float, y: float, names: list[str]) -> None:
        """Names beside dots in the colours of COLOURS, wrapped at the width."""
        at = x
        for number, name in enumerate(names):
            wide = 26 + 6.6 * len(name)
            if at + wide > self.width and at > x:
                at, y = x, y + 18
            self.dot(at + 5, y - 4, COLOURS[number % len(COLOURS)])
            self.text(at + 14, y, name)
            at += wide

    def svg(self) -> str:
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" '
            f'font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="12" fill="{INK}">\n'
            f"<title>{escape(self.title)}</title>\n{body}\n</svg>\n"
        )


def legend_height(width: float, names: list[str]) -> float:
    """What `Drawing.legend` takes."""
    rows, at = 1, 0.0
    for name in names:
        wide = 26 + 6.6 * len(name)
        if at + wide > width and at:
            rows, at = rows + 1, 0.0
        at += wide
    return rows * 18
