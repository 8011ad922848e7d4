"""What all commands' parsers do: help that fits a terminal, and flags of another program behind --."""

import pytest

from coresched.cli.main import build_parser, main

COMMANDS = [
    "demo",
    "simulate",
    "replay",
    "report",
    "plan",
    "advise",
    "serve",
    "gateway",
    "aibrix",
    "epp",
    "sidecar",
    "top",
    "batch",
    "worker",
    "sglang-sim",
    "trace",
    "doctor",
]


def test_every_command_is_looked_at() -> None:
    text = build_parser().format_help()
    listed = {line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] != " "}
    assert listed == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) > 5


DEVICE = ["--model-config", "config.json", "--memory", "80GiB", "--weights", "50GiB"]


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["sglang-sim", *DEVICE, "--port", "31601"], "--port 31601"),
        (["sglang-sim", *DEVICE, "extra"], "extra"),
        (["sglang-sim", "extra", *DEVICE, "--", "--port", "31601"], "extra"),
        (["sglang-sim", *DEVICE, "--tp", "2", "--", "--port", "31601"], "--tp 2"),
        (["simulate", "t.jsonl", "--worker", "sglang", *DEVICE, "--port=1"], "--port=1"),
        (["simulate", "t.jsonl", "--worker", "sglang", *DEVICE, "--tp", "2", "--", "--port=1"], "--tp 2"),
    ],
)
def test_what_stands_before_the_dashes_is_refused_with_the_hint(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    others = " or vllm serve" if argv[0] == "simulate" else ""
    assert capsys.readouterr().err == (
        f"coresched {argv[0]}: unrecognized arguments: {named}; flags of sglang.launch_server{others} stand "
        f"behind -- (see coresched {argv[0]} --help)\n"
    )
