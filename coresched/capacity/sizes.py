"""Amounts of memory as people write them."""

import re
from decimal import Decimal
from typing import Final

from coresched.errors import InputError

UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
LEAST_BYTES: Final = 2**20
"""Below this an amount of a device's memory is one whose unit was forgotten."""
MOST_BYTES: Final = 2**53


def memory_bytes(value: int | str, name: str) -> int:
    """Whole bytes of 70000000000, "96GiB", "70.65 GB" (1 GB is 10^9, 1 GiB is 2^30).

    Raises InputError naming ``name`` unless it is an amount from 1 MiB to 2^53 bytes.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InputError(f'{name} is {value!r}; give bytes, or text such as "96GiB" or "70.65GB"')
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match[2] not in UNITS:
        raise InputError(
            f"{name} is {str(value)[:40]!r}; give bytes or a number with one of "
            f"{', '.join(unit for unit in UNITS if unit)}, such as 96GiB"
        )
    amount = int(Decimal(match[1]) * UNITS[match[2]])
    if amount < LEAST_BYTES:
        raise InputError(f"{name} is {str(value)[:40]!r}, less than 1 MiB; give the unit, such as 80GiB")
    if amount > MOST_BYTES:
        raise InputError(f"{name} is {str(value)[:40]!r}; it must be at most {MOST_BYTES} bytes")
    return amount


def size_text(amount: float) -> str:
    """Bytes in the largest binary unit that keeps the number at 1 or above, with four digits."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= UNITS[unit]:
            return f"{amount / UNITS[unit]:.4g} {unit}"
    return f"{amount:.0f} B"
