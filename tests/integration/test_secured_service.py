"""`coresched serve` with tokens and certificates, as clients meet it: real processes, real connections."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from certificates import CLIENT, Authority
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from served import served

from coresched.client.credentials import blocking_channel, channel
from coresched.v1 import router_pb2 as pb
from coresched.v1.router_pb2_grpc import RouterStub

A, B, OPS = "token-of-a-" + "1" * 20, "token-of-b-" + "2" * 20, "token-of-ops-" + "3" * 20
LISTING = pb.ListWorkersRequest()


@pytest.fixture(autouse=True)
def without_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORESCHED_TOKEN", raising=False)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    entries = [
        {"tenant": "a", "token": A},
        {"tenant": "b", "token_sha256": sha256(B.encode()).hexdigest()},
        {"tenant": "ops", "token": OPS, "manages_workers": True},
    ]
    path.write_text(json.dumps(entries))
    return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


def outcome(call: Callable[[Any], Message], request: Message) -> grpc.StatusCode:
    try:
        call(request)
    except grpc.RpcError as error:
        return cast(grpc.Call, error).code()
    return grpc.StatusCode.OK


def listing(address: str, **options: Any) -> grpc.StatusCode:
    with blocking_channel(address, **options) as connection:
        return outcome(RouterStub(connection).ListWorkers, LISTING)


def hung_up(process: subprocess.Popen[str]) -> str:
    """All that the process has said once it has read its files again."""
    assert process.stderr is not None
    process.send_signal(signal.SIGHUP)
    said = process.stderr.readline()
    while not said.splitlines()[-1].endswith("in use"):
        said += process.stderr.readline()
    return said


@pytest.fixture(params=["plain", "tls"])
def address(
    request: pytest.FixtureRequest, tokens: Path, authority: Authority
) -> Iterator[tuple[str, dict[str, Any]]]:
    options = ["--worker", "w0", "--worker", "w1", "--tokens", str(tokens)]
    if request.param == "plain":
        with served(*options) as (address, _):
            yield address, {}
    else:
        certificate, key = authority.issue("server")
        options += ["--tls-certificate", str(certificate), "--tls-key", str(key)]
        with served(*options) as (address, _):
            yield address, {"ca": authority.folder / "ca.pem"}


def test_the_right_token_is_needed_for_all_but_health(address: tuple[str, dict[str, Any]]) -> None:
    where, tls = address
    assert listing(where, **tls) is grpc.StatusCode.UNAUTHENTICATED
    assert listing(where, token=A[:-1], **tls) is grpc.StatusCode.UNAUTHENTICATED
    for token in (A, B, OPS):
        assert listing(where, token=token, **tls) is grpc.StatusCode.OK
    with blocking_channel(where, **tls) as connection:
        health = health_pb2_grpc.HealthStub(connection).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            ProtoReflectionDescriptorDatabase(connection).get_services()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    with blocking_channel(where, token=B, **tls) as connection:
        assert "coresched.v1.Router" in ProtoReflectionDescriptorDatabase(connection).get_services()


async def test_tenants_of_the_same_ids_and_labels_do_not_meet(address: tuple[str, dict[str, Any]]) -> None:
    where, tls = address
    route = pb.RouteRequest(request_id="one id", label="k")
    async with channel(where, token=A, **tls) as of_a, channel(where, token=B, **tls) as of_b:
        a, b = RouterStub(of_a), RouterStub(of_b)
        worker = (await a.Route(route)).worker
        release = pb.ReleaseRequest(request_id="end", label="k", worker=worker)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await b.Release(release)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        await b.Route(pb.RouteRequest(request_id="one id", label="another"))
        stream = b.RouteStream()
        await stream.write(pb.RouteStreamRequest(route=pb.RouteRequest(request_id="s", label="k")))
        held = (await stream.read()).route.worker
        assert (await a.Route(route)).worker == worker
        with pytest.raises(grpc.aio.AioRpcError):
            await a.Release(pb.ReleaseRequest(request_id="not mine", label="another", worker=held))
        listed = await a.ListWorkers(LISTING)
        assert sum(entry.in_flight for entry in listed.workers) == 3
        assert "another" not in str(listed)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        await a.Release(release)
        assert sum(entry.in_flight for entry in (await a.ListWorkers(LISTING)).workers) == 1


def test_workers_are_drained_by_who_manages_them_alone(address: tuple[str, dict[str, Any]]) -> None:
    where, tls = address
    drain = pb.DrainWorkerRequest(request_id="d", worker="w0")
    with blocking_channel(where, token=A, **tls) as connection:
        assert outcome(RouterStub(connection).DrainWorker, drain) is grpc.StatusCode.PERMISSION_DENIED
    with blocking_channel(where, token=OPS, **tls) as connection:
        router = RouterStub(connection)
        assert router.DrainWorker(drain) == router.DrainWorker(drain)
        for n in range(8):
            assert router.Route(pb.RouteRequest(request_id=f"r{n}", label=f"k{n}")).worker == "w1"
        states = {entry.worker: entry.state for entry in router.ListWorkers(LISTING).workers}
        assert states == {"w0": pb.WORKER_STATE_DRAINING, "w1": pb.WORKER_STATE_ROUTABLE}
        router.RemoveWorker(pb.RemoveWorkerRequest(request_id="e", worker="w0"))
        assert [entry.worker for entry in router.ListWorkers(LISTING).workers] == ["w1"]


def test_metadata_beyond_its_limit_is_refused(address: tuple[str, dict[str, Any]]) -> None:
    where, tls = address
    with blocking_channel(where, token=A, **tls) as connection:
        with pytest.raises(grpc.RpcError) as refused:
            RouterStub(connection).ListWorkers(LISTING, metadata=(("x", "y" * 8192),))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]


def test_a_client_that_trusts_another_ca_or_speaks_no_tls_is_not_served(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("server")
    other = Authority.create(tmp_path, "other")
    with served("--tls-certificate", str(certificate), "--tls-key", str(key)) as (address, _):
        assert listing(address, ca=authority.folder / "ca.pem") is grpc.StatusCode.OK
        assert listing(address, ca=other.folder / "other.pem") is grpc.StatusCode.UNAVAILABLE
        assert listing(address) is grpc.StatusCode.UNAVAILABLE


def test_with_a_client_ca_only_clients_of_it_are_served(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server")
    mine = dict(zip(("certificate", "key"), authority.issue("client", usage=CLIENT), strict=True))
    stranger = Authority.create(tmp_path, "other").issue("stranger", usage=CLIENT)
    theirs = dict(zip(("certificate", "key"), stranger, strict=True))
    ca = authority.folder / "ca.pem"
    files = ["--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(ca)]
    with served(*files) as (address, _):
        assert listing(address, ca=ca, **mine) is grpc.StatusCode.OK
        assert listing(address, ca=ca) is grpc.StatusCode.UNAVAILABLE
        assert listing(address, ca=ca, **theirs) is grpc.StatusCode.UNAVAILABLE


def test_a_hangup_takes_new_tokens_and_certificates_and_bad_ones_change_nothing(
    authority: Authority, tokens: Path, tmp_path: Path
) -> None:
    certificate, key = authority.issue("server")
    old, new = {"ca": authority.folder / "ca.pem"}, {"ca": tmp_path / "new.pem"}
    options = ["--tokens", str(tokens), "--tls-certificate", str(certificate), "--tls-key", str(key)]
    with served(*options) as (address, process):
        tokens.write_text("[]")
        assert "must have 1 to 1000 entries, it has 0; what was read before stays in use" in hung_up(process)
        assert listing(address, token=A, **old) is grpc.StatusCode.OK

        rotated = "another-token-of-a-" + "4" * 20
        tokens.write_text(json.dumps([{"tenant": "a", "token": rotated}]))
        key.write_text("no key")
        assert f"--tls-key {str(key)!r} must be a private key in PEM; what was read" in hung_up(process)
        assert listing(address, token=A, **old) is grpc.StatusCode.OK

        Authority.create(tmp_path, "new").issue("server")
        assert "were read again and are in use" in hung_up(process)
        assert listing(address, token=rotated, **new) is grpc.StatusCode.OK
        assert listing(address, token=A, **new) is grpc.StatusCode.UNAUTHENTICATED
        assert listing(address, token=rotated, **old) is grpc.StatusCode.UNAVAILABLE
        process.terminate()
        out, err = process.communicate(timeout=20)
        assert A not in out + err
        assert rotated not in out + err


@pytest.mark.parametrize("verbosity", ["NONE", "ERROR", "INFO", "DEBUG"])
def test_no_token_is_ever_printed(verbosity: str, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", verbosity)
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    wrong = "wrong-token-" + "5" * 20
    with served("--worker", "w0", "--tokens", str(tokens)) as (address, process):
        for token in (A, wrong):
            listing(address, token=token)
            with blocking_channel(address, token=token) as connection:
                router = RouterStub(connection)
                outcome(router.Release, pb.ReleaseRequest(request_id="r", label="k", worker="w0"))
                answers = router.RouteStream(iter([pb.RouteStreamRequest()]))
                outcome(lambda _, answers=answers: next(answers), LISTING)
                outcome(router.ListWorkers, pb.RouteRequest(request_id="\0" * 100))
        tokens.write_text(json.dumps([{"tenant": "a", A: A}]))
        said = hung_up(process)
        assert "unknown field" in said
        process.terminate()
        out, err = process.communicate(timeout=20)
        assert all(secret not in said + out + err for secret in (A, B, OPS, wrong))


def test_the_pages_example_serves_what_it_says(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    (entries,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    program, verb, listen, _, *options = shlex.split(command.replace("\\\n", ""))
    assert (program, verb, listen) == ("coresched", "serve", "--listen")
    monkeypatch.chdir(tmp_path)
    Path("tokens.json").write_text(entries)
    authority.issue("server")
    (authority.folder / "ca.pem").rename("clients.pem")
    certificate, key = authority.issue("client", usage=CLIENT)
    token = json.loads(entries)[0]["token"]
    with served(*options) as (address, _):
        mine = {"ca": "clients.pem", "certificate": certificate, "key": key}
        assert listing(address, token=token, **mine) is grpc.StatusCode.OK
        assert listing(address, **mine) is grpc.StatusCode.UNAUTHENTICATED
        assert listing(address, token=token, ca="clients.pem") is grpc.StatusCode.UNAVAILABLE
