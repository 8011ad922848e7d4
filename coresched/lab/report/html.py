"""What every report is put together from: the page around it, and tables."""

from collections.abc import Sequence
from html import escape

from coresched.lab.report.style import STYLE


def html_page(title: str, sections: Sequence[str]) -> str:
    """A whole page; ``sections`` are HTML, the title is text."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, style: str = "") -> str:
    """A table of text; ``style`` is a CSS class of it. A cell may begin with spaces."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f'<table class="{style}">' if style else "<table>"
    return f"{table}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
