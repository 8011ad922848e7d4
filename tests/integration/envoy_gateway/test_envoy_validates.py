"""Envoy takes the generated configuration, whatever the addresses."""

import subprocess
import sys
from pathlib import Path

import pytest
from coresched_envoy.configuration import envoy_configuration, picker_address
from envoys import envoy_path

from coresched.listen import TcpAddress

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.skipif(sys.platform != "linux", reason="its wheel is for Linux"),
]


@pytest.mark.parametrize(
    ("listen", "picker", "workers", "load_bound"),
    [
        (TcpAddress("0.0.0.0", 8080), "127.0.0.1:9002", {"10.0.0.1:30000": 1.0}, 1.25),
        (TcpAddress("::", 80), "[::1]:9002", {"[fd00::1]:30000": 0.001, "10.0.0.1:1": 1000.0}, 1.0),
        (
            TcpAddress("127.0.0.1", 8080),
            "unix:/run/with 'quotes': \"and\" {braces}",
            {"10.0.0.1:1": 2.5},
            300.0,
        ),
    ],
)
def test_envoy_validates_it(
    listen: TcpAddress, picker: str, workers: dict[str, float], load_bound: float, tmp_path: Path
) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text(
        envoy_configuration(
            listen=listen,
            picker=picker_address(picker),
            workers=workers,
            label_headers=["x-session-id", "x-other"],
            load_bound=load_bound,
        )
    )
    done = subprocess.run(
        [envoy_path(), "--mode", "validate", "-c", str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr  # such as a deprecated field
