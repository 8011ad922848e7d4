"""The frame of a report, and tables."""

from collections.abc import Sequence
from html import escape

from coresched.lab.report.style import STYLE


def html_page(title: str, sections: Sequence[str]) -> str:
    """A page on its own: nothing is loaded. ``sections`` are HTML."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Names, and what they mean."""
    return (
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs) + "</dl>"
    )


def curve_style(number: int, count: int) -> str:
    """Of run ``number`` of ``count``: the first is the grey reference, the last one stands out."""
    if number == 0:
        return "first"
    return "last" if number == count - 1 else f"between b{number % 5}"
