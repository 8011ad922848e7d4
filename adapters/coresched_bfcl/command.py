"""bfcl's command line, its `generate` under this process's gate."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from coresched_harness.run import Labels, gated_run, open_gate, say

from coresched.errors import InputError
from coresched_bfcl.compatibility import FIT, load_command_line


def main() -> int:
    """Run bfcl's command line; the exit status, unless bfcl exits by itself."""
    try:
        bfcl = load_command_line()
    except InputError as error:
        say(f"error: {error}")
        return 2
    bfcl.generation_main = partial(generate, bfcl.generation_main)
    bfcl.cli(prog_name="python -m coresched_bfcl")
    return 0


def generate(plain: Any, args: Any) -> None:
    """bfcl's `generation_main(args)`, which it calls when it has read its .env file.

    Raises SystemExit where the environment is wrong (2), or the gate fails during the run (1).
    """
    gate = open_gate("bfcl")
    if gate is None:
        plain(args)
        return
    labels = Labels(shared=bool(os.environ.get("CORESCHED_SERVICE")))
    with gated_run(gate, "the same command goes on with the test cases that have no result row yet"):
        FIT.check()
        from coresched_bfcl.gated import Gated  # imports places of bfcl that were just checked

        with Gated(gate, labels, args.num_threads).installed():
            plain(args)
