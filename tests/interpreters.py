"""Other Pythons of this machine."""

import shutil
import subprocess
from pathlib import Path

CHECK = (
    "import ensurepip, os, sys, sysconfig, venv; "
    "assert os.path.exists(sysconfig.get_path('include') + '/Python.h'); "
    "assert '%d.%d' % sys.version_info[:2] == sys.argv[1]"
)


def find_interpreter(version: str) -> Path | None:
    """A Python of this version, such as "3.11", that can make environments and compile."""
    found = [shutil.which(f"python{version}")]
    found += sorted(map(str, Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")))
    for path in filter(None, found):
        if subprocess.run([path, "-c", CHECK, version], capture_output=True, check=False).returncode == 0:
            return Path(path)
    return None
