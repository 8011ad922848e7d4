"""The scheduling core: compiled, without I/O and without a clock of its own."""

from coresched.core.chain import ChainAdvancingQueue

__all__ = ["ChainAdvancingQueue"]
