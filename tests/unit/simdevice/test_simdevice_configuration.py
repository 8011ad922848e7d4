"""The simulated device's environment variables: sizes, defaults, and one line for each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest
from coresched_engine.virtual.device import MEMORY, SPEED, STEP_TIMES, WEIGHTS, read_device
from coresched_simdevice import configuration
from coresched_simdevice.configuration import enabled
from coresched_simdevice.platform import activate
from coresched_simdevice.plugin import register

from coresched.errors import InputError
from coresched.lab.simulator.model import load_worker_model

CHECKOUT = Path(__file__).parents[3]
SIZES = {MEMORY: "80GiB", WEIGHTS: "50 GB"}


def test_sizes_are_bytes_and_the_rest_has_defaults() -> None:
    device = read_device(SIZES)
    assert (device.memory_bytes, device.weights_bytes) == (80 * 2**30, 50 * 10**9)
    assert (device.times, device.speed) == (load_worker_model().times, 1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({MEMORY: "80 gigs"}, f"{MEMORY} is '80 gigs'"),
        ({WEIGHTS: "0"}, f"{WEIGHTS} is '0'"),
        ({WEIGHTS: "80GiB"}, f"{WEIGHTS} is 80 GiB, which leaves nothing"),
        ({SPEED: "fast"}, f"{SPEED} is 'fast'"),
        ({SPEED: "0"}, f"{SPEED} is '0'"),
        ({SPEED: "inf"}, f"{SPEED} is 'inf'"),
        ({STEP_TIMES: "h9000"}, f"{STEP_TIMES}: worker model 'h9000'"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as error:
        read_device(SIZES | change)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("missing", [MEMORY, WEIGHTS])
def test_sizes_have_no_default(missing: str) -> None:
    with pytest.raises(InputError, match=f"{missing} is not set"):
        read_device({name: value for name, value in SIZES.items() if name != missing})


def test_the_device_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(configuration.ENABLE, raising=False)
    assert not enabled({})
    assert not enabled({configuration.ENABLE: "0"})
    assert enabled({configuration.ENABLE: "1"})
    assert activate() is None
    register()  # touches nothing of SGLang's, which is not installed here


@pytest.mark.parametrize("entry_point", ["platform import activate", "plugin import register"])
@pytest.mark.parametrize(
    ("value", "words"), [("yes", "CORESCHED_SIMDEVICE is 'yes'"), ("1", f"{MEMORY} is not set")]
)
def test_a_mistake_ends_a_server_although_it_only_logs_exceptions(
    entry_point: str, value: str, words: str
) -> None:
    name = entry_point.split()[-1]
    code = f"from coresched_simdevice.{entry_point}\ntry: {name}()\nexcept Exception: print('went on')"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'adapters'}", configuration.ENABLE: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"coresched_simdevice: {words}")
    assert ended.stderr.count("\n") == 1
