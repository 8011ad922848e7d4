"""Argument parsing shared by the subcommands: one-line errors, and the types of their values."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """A parser that answers bad input with one line and exit code 2.

    After `take_flags` what stands behind -- are flags of another program, as ``flags``. What `filled_by`
    was given adds its arguments when the parser is first used.
    """

    _flags_meaning: str | None = None
    _fill: "Callable[[CommandParser], None] | None" = None

    def filled_by(self, fill: "Callable[[CommandParser], None]") -> None:
        """For arguments whose names or help take long to import: the other commands do without."""
        self._fill = fill

    def take_flags(self, meaning: str) -> None:
        """Keep what stands behind -- for another program. ``meaning`` is said in the help and in errors."""
        self._flags_meaning = meaning
        self.add_argument("flags", nargs="*", default=(), metavar="-- FLAG", help=meaning)

    def parse_known_args(  # type: ignore[override]  # of its overloads the one that is used
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)
        given = list(sys.argv[1:] if args is None else args)
        if self._flags_meaning is None:
            return super().parse_known_args(given, namespace)
        # Here, for argparse would give them to a positional before it that takes many.
        place = given.index("--") if "--" in given else len(given)
        parsed, unknown = super().parse_known_args(given[:place], namespace)
        if stray := [*unknown, *parsed.flags]:
            self.error(f"unrecognized arguments: {' '.join(stray)}; {self._flags_meaning} stand behind --")
        parsed.flags = given[place + 1 :]
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


class HelpFormatter(argparse.HelpFormatter):
    """Fills descriptions to the terminal's width, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("example:"):
            return super()._fill_text(text, width, indent)
        return "".join(indent + line for line in text.splitlines(keepends=True))


def add_command(
    commands: "argparse._SubParsersAction[CommandParser]",
    name: str,
    *,
    summary: str,
    description: str,
    example: str,
) -> CommandParser:
    """Add a subcommand whose help ends with an example."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=HelpFormatter,
    )


MOST = 10**9


def integer(text: str) -> int:
    """A whole number in decimal digits."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an integer of at most 18 digits")
    return int(text)


def count(text: str) -> int:
    """An integer from 1 to MOST."""
    value = integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small; it must be at least 1")
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{value} is too large; it must be at most {MOST}")
    return value


def number(*, at_least: float | None = None, above: float | None = None) -> Callable[[str], float]:
    """A finite number within a limit."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not finite")
        if at_least is not None and value < at_least:
            raise argparse.ArgumentTypeError(f"{text} is too small; it must be at least {at_least:g}")
        if above is not None and value <= above:
            raise argparse.ArgumentTypeError(f"{text} is too small; it must be greater than {above:g}")
        return value

    return parse


def weighted(text: str) -> tuple[str, float]:
    """NAME or NAME=WEIGHT: the name, and its weight, 1 if there is none.

    The = of a URL's query is none of ours: text with ? is a name, or refused, as a whole.
    """
    name, equals, weight = text.rpartition("=")
    if not equals or "?" in text:
        return text, 1.0
    return name, number(above=0)(weight)
