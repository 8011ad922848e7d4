"""Servers of a tiny model: booted, watched and ended, with a stand-in for vLLM; and the model's files."""

import json
import struct
import sys
from pathlib import Path

import pytest
from coresched_vllm.local.servers import ServerError, free_port, serving, start, wait_until_healthy
from coresched_vllm.local.tiny_model import Shape, write_model
from process_table import descendants, wait_until_gone

SERVER = """
import http.server, subprocess, sys, time

port = int(sys.argv[sys.argv.index("--port") + 1])
if "--fail" in sys.argv:
    print("ValueError: no such thing")
    print("nanobind: leaked 4 instances!", flush=True)
    sys.exit(3)
if "--hang" in sys.argv:
    time.sleep(600)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.pause()"])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    package = tmp_path / "packages" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(SERVER)
    return {"PYTHONPATH": str(tmp_path / "packages")}


def test_all_processes_of_a_server_end_with_the_block(variables: dict[str, str], tmp_path: Path) -> None:
    names = ("a", "b")
    with serving(sys.executable, tmp_path, [], names=names, folder=tmp_path, variables=variables) as servers:
        assert [server.name for server in servers] == ["a", "b"]
        assert all(server.is_healthy() for server in servers)
        processes = {server.process.pid for server in servers}
        processes |= set().union(*(descendants(server.process.pid) for server in servers))
        assert len(processes) == 4
    wait_until_gone(processes)


def test_an_interpreter_may_be_named_from_the_working_directory(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    with serving(
        "bin/python", Path("model"), [], names=["a"], folder=tmp_path / "logs", variables=variables
    ) as servers:
        assert servers[0].is_healthy()


def test_a_server_that_ends_is_named_with_its_last_lines(variables: dict[str, str], tmp_path: Path) -> None:
    booting = serving(sys.executable, tmp_path, ["--fail"], names=["a"], folder=tmp_path, variables=variables)
    with pytest.raises(ServerError, match="vLLM server a ended with exit code 3") as caught, booting:
        pass
    assert caught.value.tail == ["ValueError: no such thing"]


def test_a_server_is_waited_for_no_longer_than_that(variables: dict[str, str], tmp_path: Path) -> None:
    server = start(
        sys.executable,
        tmp_path,
        ["--hang"],
        name="a",
        port=free_port(),
        log=tmp_path / "a.log",
        variables=variables,
    )
    try:
        with pytest.raises(ServerError, match="vLLM server a is not up after 0 s"):
            wait_until_healthy([server], timeout_s=0)
    finally:
        server.kill()
    with pytest.raises(ServerError, match="signal 9"):
        server.check()


def test_the_weights_are_whole_and_the_tokenizer_has_every_byte(tmp_path: Path) -> None:
    write_model(tmp_path, Shape(hidden_size=128, layers="ca"))
    data = (tmp_path / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = json.loads(data[8 : 8 + length])
    del tensors["__metadata__"]
    places = sorted(one["data_offsets"] for one in tensors.values())
    assert [begin for begin, _ in places] == [0, *(end for _, end in places[:-1])]
    assert places[-1][1] == len(data) - 8 - length
    assert tensors["model.layers.1.self_attn.k_proj.weight"]["shape"] == [64, 128]
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256))
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["layer_types"], config["num_key_value_heads"]) == (["conv", "full_attention"], 2)


def test_a_model_without_weights_has_none(tmp_path: Path) -> None:
    assert not list(write_model(tmp_path, weights=False).glob("*.safetensors"))
