"""The pools an engine reported, and where each number came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coresched.capacity.engines import TITLES, Engine

GIB = 1 << 30


@dataclass(frozen=True)
class ObservedPools:
    """The pools of one engine replica as it reported them; None is what it did not report.

    Of SGLang these are the numbers of one attention-DP rank, the smallest where ranks differ. Bytes are of
    one GPU and as exact as the engine prints them: to 0.001 GiB on SGLang's endpoint, 0.01 GiB in logs.
    """

    engine: Engine
    version: str | None
    source: str
    """The URL or the file, as messages call it."""
    ranks: int = 1
    """Attention-DP ranks or replicas behind the address; each has pools of the sizes below."""
    state_slots: int | None = None
    """K of SGLang, without the padding slot; None for a dense model, and for vLLM, where blocks hold them."""
    kv_tokens: int | None = None
    """SGLang's max_total_num_tokens (rows of one rank, so a DCP rank's share), vLLM's KV cache size."""
    max_running_requests: int | None = None
    """What the engine really runs at once; on vLLM --max-num-seqs."""
    page_size: int | None = None
    """Tokens of a page of SGLang, or of a block of vLLM."""
    blocks: int | None = None
    """vLLM's blocks of one engine, the null block included."""
    pool_bytes: int | None = None
    """vLLM's memory for all blocks."""
    kv_pool_bytes: int | None = None
    state_pool_bytes: int | None = None
    """Of SGLang's slots, the padding slot included, draft states not."""
    rounding_bytes: int = 0
    """How far the reported bytes can be from the true ones."""
    max_context: int | None = None
    """Tokens of the longest request."""
    flags: Mapping[str, object] = field(default_factory=dict)
    """What the engine was started with, under its own names (model_path, tp_size, ...), resolved defaults
    included where the engine reports them."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each number above came from, by its name here."""

    @property
    def title(self) -> str:
        """The engine's name and version for people."""
        return f"{TITLES[self.engine]} {self.version or '(version not reported)'}"

    def count(self, flag: str) -> int | None:
        """A flag that is an integer; None where absent or of another type."""
        value = self.flags.get(flag)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, flag: str) -> float | None:
        """A flag that is a number; None where absent or of another type."""
        value = self.flags.get(flag)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def text(self, flag: str) -> str | None:
        """A flag that is a text; None where absent or of another type."""
        value = self.flags.get(flag)
        return value if isinstance(value, str) else None

    def switch(self, flag: str) -> bool:
        """Whether a flag is on; off where it was not reported."""
        return self.flags.get(flag) is True
