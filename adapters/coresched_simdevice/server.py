"""The first process of a server: ``sglang.launch_server``, tied to the process that starts it.

    python -m coresched_simdevice.server STARTER FLAG...

STARTER is that process's id; FLAGs are SGLang's.
"""

import runpy
import sys

from coresched_simdevice.lifetime import end_with

if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    # As -m runs it, so that processes which it spawns find their main module.
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
