"""What goes into the generated Envoy configuration; tests/integration/envoy_gateway runs it."""

from pathlib import Path

import pytest
from coresched_envoy.configuration import address, envoy_configuration, picker_address
from coresched_envoy.endpoints import checked_endpoint

from coresched.cli.main import main
from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress

PICKER = TcpAddress("10.0.0.9", 9002)


def configuration(
    workers: dict[str, float], picker: TcpAddress | UnixAddress = PICKER, load_bound: float = 1.25
) -> str:
    return envoy_configuration(
        listen=TcpAddress("0.0.0.0", 8080),
        picker=picker,
        workers=workers,
        label_headers=["x-smg-routing-key", "x-session-id"],
        load_bound=load_bound,
    )


def test_workers_picker_and_bound_are_in_it() -> None:
    text = configuration({"10.0.0.1:30000": 1, "[fd00::2]:30001": 2.5})
    for part in (
        'address: {socket_address: {address: "0.0.0.0", port_value: 8080}}',
        'endpoint: {address: {socket_address: {address: "10.0.0.1", port_value: 30000}}}',
        'endpoint: {address: {socket_address: {address: "fd00::2", port_value: 30001}}}',
        'endpoint: {address: {socket_address: {address: "10.0.0.9", port_value: 9002}}}',
        "load_balancing_weight: 100\n",
        "load_balancing_weight: 250\n",
        "hash_balance_factor: 125",
        '- exact: "x-smg-routing-key"\n                  - exact: "x-session-id"\n',
        'header_name: "x-smg-routing-key"}, terminal: true}',
        "num_retries: 1\n",
    ):
        assert text.count(part) == 1, part
    assert max(map(len, text.splitlines())) < 130


@pytest.mark.parametrize(
    ("listen", "reached"),
    [
        ("0.0.0.0:9002", '{socket_address: {address: "127.0.0.1", port_value: 9002}}'),
        ("[::]:9002", '{socket_address: {address: "::1", port_value: 9002}}'),
        ("unix:/run/picker", '{pipe: {path: "/run/picker"}}'),
    ],
)
def test_a_picker_is_reached_where_it_listens(listen: str, reached: str) -> None:
    assert reached in configuration({"10.0.0.1:30000": 1}, picker_address(listen))


@pytest.mark.parametrize(
    "text",
    ["host:80", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "::1:80", "[10.0.0.1]:80", "http://10.0.0.1:80"],
)
def test_what_is_no_numeric_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--envoy-listen must be IP:PORT or \[IPV6\]:PORT") as refused:
        address(text, "--envoy-listen")
    assert repr(text) in str(refused.value)
    with pytest.raises(InputError, match="--worker must be IP:PORT"):
        configuration({text: 1})


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[::a00:1]:80", "[::10.0.0.1]:80"),
        ("[FD00:0:0::2]:080", "[fd00::2]:80"),
    ],
)
def test_addresses_are_written_as_envoy_writes_them(text: str, written: str) -> None:
    assert checked_endpoint(text, "--worker") == written


def test_an_ipv4_address_inside_ipv6_is_refused() -> None:
    with pytest.raises(InputError, match=r"--worker must not be an IPv4 .*; write it as 10\.0\.0\.1:80"):
        checked_endpoint("[::ffff:a00:1]:080", "--worker")


def test_a_link_local_interface_is_refused() -> None:
    with pytest.raises(InputError, match=r"--worker must have no interface in .*leave out %eth0"):
        checked_endpoint("[fe80::1%eth0]:80", "--worker")


def test_a_bound_beyond_envoys_numbers_is_its_largest() -> None:
    assert "hash_balance_factor: 4294967295}" in configuration({"10.0.0.1:80": 1}, load_bound=1e9)


def test_envoy_does_not_listen_where_another_does() -> None:
    for flag, worker, picker in (
        ("--worker", "0.0.0.0:8080", PICKER),
        ("--listen", "10.0.0.1:80", TcpAddress("0.0.0.0", 8080)),
    ):
        with pytest.raises(
            InputError, match=f"--envoy-listen must be another address than {flag}, got 0.0.0.0"
        ):
            configuration({worker: 1}, picker)


def test_a_relative_socket_and_no_worker_are_refused() -> None:
    with pytest.raises(
        InputError, match="--listen must have an absolute path for --envoy-config, got 'unix:p'"
    ):
        picker_address("unix:p")
    with pytest.raises(InputError, match="--envoy-config needs --worker at least once"):
        configuration({})


def test_the_command_prints_it_for_all_its_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "workers"
    file.write_text("10.0.0.2:30000=2\n")
    command = ["epp", "--envoy-config", "--listen", "127.0.0.1:9002", "--worker", "10.0.0.1:30000"]
    options = ["--workers-file", str(file), "--label-header", "X-User-Id", "--load-bound", "1.5"]
    assert main([*command, *options, "--envoy-listen", "0.0.0.0:80"]) == 0
    text = capsys.readouterr().out
    for part in (
        'address: "0.0.0.0", port_value: 80}',
        'address: "10.0.0.1", port_value: 30000}',
        'address: "10.0.0.2", port_value: 30000}',
        "load_balancing_weight: 200",
        "hash_balance_factor: 150",
        '- exact: "x-user-id"',
    ):
        assert text.count(part) == 1, part


def test_the_address_of_an_envoy_without_its_configuration_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["epp", "--worker", "10.0.0.1:30000", "--envoy-listen", "0.0.0.0:80"]) == 2
    assert "--envoy-listen is for --envoy-config, which is not given" in capsys.readouterr().err
