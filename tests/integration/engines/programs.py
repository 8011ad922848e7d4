"""Programs that tests run with an engine's or a harness's Python."""

from pathlib import Path

TO_ITS_END = Path(__file__).with_name("to_its_end.py")
"""In front of a command for a fork server: its exit handlers run, too."""
