"""Pieces of Markdown."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

COLUMNS: Final = 120
NO_TEXT: Final = ("|", "`", "$", "!", "#", "<")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def command_block(told: Mapping[str, Any]) -> str:
    """The command that made the numbers below it, and when."""
    seeds = f", {told['seeds']} seeds" if "seeds" in told else ""
    return f"```console\n$ {told['command']}\n```\n\n{told['date']}, coresched {told['version']}{seeds}."


def wrapped(text: str) -> str:
    """Paragraphs and lists with lines of at most COLUMNS; what is no running text stays as it is."""
    return "\n".join(line if line.startswith(NO_TEXT) else _folded(line) for line in text.split("\n"))


def _folded(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(
        line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def recorded_text(told: Mapping[str, Any]) -> list[str]:
    """What the recorded batches are, where there are any."""
    sizes = [
        f"{one['name']}: {one['trajectories']:,} trajectories, {one['turns']:,} turns"
        for one in told["recorded"]
    ]
    if not sizes:
        return []
    return [
        "Recorded batches, real trajectories in files of their own, here in another order each seed, on "
        "workers whose "
        "memory is cut until it holds a third of the batch: " + "; ".join(sizes) + "."
    ]


def image(name: str, about: str) -> str:
    return f"![{about}](results/{name}.svg)"


def details(summary: str, inside: str) -> str:
    """Folded away until it is asked for."""
    return f"<details>\n<summary>{summary}</summary>\n\n{inside}\n\n</details>"


def percent(share: float) -> str:
    """With a sign, one digit; 0 has none."""
    text = f"{share * 100:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def interval_text(share: Mapping[str, float]) -> str:
    """Median and interval in percent."""
    return f"{percent(share['median'])} ({percent(share['low'])} to {percent(share['high'])})"


def is_sure(share: Mapping[str, float]) -> bool:
    """Whether the interval leaves no doubt of the sign."""
    return share["high"] < 0 or share["low"] > 0


def short(share: Mapping[str, float]) -> str:
    """The median in percent, bold where the sign is sure."""
    text = percent(share["median"])
    return f"**{text}**" if is_sure(share) else text


def minutes(row: Mapping[str, Any]) -> str:
    """A makespan with its distance to the limit."""
    return f"{row['makespan_s'] / 60:.1f} (x{row['of_bound']:.2f})"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``; none for none."""
    if not names:
        return "none"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
