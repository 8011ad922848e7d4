"""Short pieces of text one after another, broken between pieces only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = 2


class Flow:
    def __init__(self, pieces: Sequence[Text | str]) -> None:
        self._pieces = [piece if isinstance(piece, Text) else Text(piece) for piece in pieces]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(no_wrap=True, overflow="crop")
        for piece in self._pieces:
            if line and line.cell_len + _GAP + piece.cell_len > options.max_width:
                yield line
                line = Text(no_wrap=True, overflow="crop")
            if line:
                line.append(" " * _GAP)
            line.append_text(piece)
        yield line
