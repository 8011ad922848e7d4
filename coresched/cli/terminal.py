"""Where commands print: colours and the window's width in a terminal, plain text of 80 columns in a pipe."""

import io
import sys

from rich.console import Console

NARROWEST = 20  # columns; COLUMNS=0, say, would leave nothing to print in
_EIGHTHS = " ▏▎▍▌▋▊▉"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError being handled: `main` ends quietly, rich would exit with code 1


def stdout_console() -> Console:
    """The console of standard output. Prints text as it is: no markup, no emoji codes, no guessed colours."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name or an id that the terminal's encoding lacks must not end the command.
        sys.stdout.reconfigure(errors="replace")
    console = _Console(markup=False, emoji=False, highlight=False)
    if console.width < NARROWEST:
        console.width = NARROWEST
    return console


def bar(console: Console, share: float, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` characters; anything above 0 is visible."""
    if console.options.ascii_only:
        return "#" * max(round(share * width), 1 if share else 0)
    eighths = max(round(share * width * 8), 1 if share else 0)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
