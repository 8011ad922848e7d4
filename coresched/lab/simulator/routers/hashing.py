"""A hash that is the same in every process."""

from hashlib import blake2b


def stable_hash(text: str) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
