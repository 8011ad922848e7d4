"""A line on standard error that says which case runs."""

import sys


def announce(text: str) -> None:
    """Replace the line, in a terminal only; between timings, which a live bar's thread would disturb."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


def clear() -> None:
    announce("")
