"""The bench's program in a process that has vLLM loaded; vLLM's Python runs this.

    python tiny_model_runs.py JOBS

JOBS is a file with what bench.vllm_policies.program reads.
"""

import sys

from bench.vllm_policies.program import main

if __name__ == "__main__":
    with open(sys.argv[1]) as sys.stdin:
        sys.exit(main())
