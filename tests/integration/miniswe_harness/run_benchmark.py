"""`mini-extra` where datasets is imported already: `python run_benchmark.py CACHE ARGUMENTS...`.

CACHE is the folder in which datasets keeps what it has read, which it would take from HF_HOME at its import.
"""

import sys
from pathlib import Path

import datasets

datasets.config.HF_DATASETS_CACHE = Path(sys.argv.pop(1))

from minisweagent.run.utilities.mini_extra import main  # noqa: E402 - reads its settings

main()
