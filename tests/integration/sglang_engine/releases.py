"""Other releases of SGLang beside the installed one: their wheels unpacked, for the front of the path."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest
from integration.sglang_oracle.wheel import WheelUnavailable, WrongEngine, find_wheel, wheel_directory


def unpacked_release(version: str) -> Path:
    """A folder with the package `sglang` of the release. Skips the test where it cannot be had."""
    folder = wheel_directory() / f"sglang-{version}"
    if folder.exists():
        return folder
    try:
        wheel = find_wheel(version)
    except (WheelUnavailable, WrongEngine) as reason:
        pytest.skip(str(reason))
    scratch = Path(tempfile.mkdtemp(dir=wheel_directory()))
    try:
        with zipfile.ZipFile(wheel.path) as archive:  # which checks each file against its sum
            for name in archive.namelist():
                if name.startswith("sglang/") and not name.startswith("sglang/multimodal_gen/"):
                    archive.extract(name, scratch)
        scratch.rename(folder)
    except FileExistsError:  # another process of these tests was faster
        pass
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder
