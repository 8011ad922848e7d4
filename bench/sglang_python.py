"""What processes of SGLang's interpreter, which has an environment of its own, get from here."""

import os
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Variables: this checkout's code first, whatever that environment has installed of it."""
    paths = [str(_ROOT), str(_ROOT / "adapters"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
