"""`coresched demo --engine` before anything is started."""

from importlib import util

import pytest

from coresched.cli.main import main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "3"], "--port is for a real engine; add --engine vllm, or leave it out"),
        (["--samples", "3"], "--samples is for a real engine"),
        (["--engine", "vllm", "--label-capacity", "3"], "--label-capacity shapes the simulated demo"),
        (["--engine", "sglang"], "invalid choice: 'sglang'"),
    ],
)
def test_options_of_the_other_demo_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["demo", *options])
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.skipif(util.find_spec("vllm") is not None, reason="this Python has vLLM")
def test_without_vllm_the_demo_says_where_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--engine", "vllm"]) == 2
    assert "install coresched into vLLM's environment and run the demo there" in capsys.readouterr().err
