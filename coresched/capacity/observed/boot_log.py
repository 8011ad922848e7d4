"""The boot log of either engine, read line by line; of several boots in a file the last one counts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from coresched.capacity.fields import one_line
from coresched.capacity.observed import sglang_report, vllm_report
from coresched.capacity.observed.pools import ObservedPools
from coresched.capacity.observed.sglang_report import SglangBoot
from coresched.capacity.observed.vllm_report import VllmBoot
from coresched.errors import InputError

LONGEST_LINE = 1 << 20
"""Bytes of a line that are looked at; the engines' longest, with all flags, have some 30,000."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def observe_log(path: str | Path) -> ObservedPools:
    """The pools of the last boot in an engine's log.

    Raises InputError naming the file: it cannot be read, no boot is in it, or the last one did not get as far
    as its pools.
    """
    name = one_line(str(path))
    boot: SglangBoot | VllmBoot | None = None
    began = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_lines(file), 1):
                started = _started(line, boot)
                if started is not None:
                    boot, began = started, number
                if boot is not None:
                    boot.read(line)
    except (OSError, ValueError) as problem:  # ValueError: a null byte in the path
        reason = getattr(problem, "strerror", None) or "not a path"
        raise InputError(f"{name}: cannot be read ({reason}); give an engine's boot log") from None
    if boot is None:
        raise InputError(
            f"{name}: no boot of SGLang (server_args=...) or vLLM (non-default args: ...) is in it; give the "
            "log from the engine's start on"
        )
    if boot.needed is not None:
        raise InputError(
            f"{name}: the boot that begins in line {began:,} has no line with '{boot.needed}'; it has not "
            "come up, or the log level hides it, so give the log of one that did"
        )
    return boot.pools(name)


def _started(line: str, boot: SglangBoot | VllmBoot | None) -> SglangBoot | VllmBoot | None:
    """A new boot where the line begins one. A vLLM server logs its arguments, then its engine's config."""
    if sglang_report.BOOT.search(line):
        return SglangBoot()
    if vllm_report.ARGUMENTS.search(line):
        return VllmBoot()
    fresh = isinstance(boot, VllmBoot) and boot.version is None
    return VllmBoot() if vllm_report.ENGINE.search(line) and not fresh else None


def _lines(file: BinaryIO) -> Iterator[str]:
    """Lines as text, cut at the longest length; colours are left out, bytes that are no UTF-8 replaced."""
    while part := file.readline(LONGEST_LINE):
        rest = part
        while not rest.endswith(b"\n") and len(rest) == LONGEST_LINE:
            rest = file.readline(LONGEST_LINE)
        yield _COLOUR.sub("", part.decode("utf-8", "replace"))
