"""What the transports take and refuse, before any request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import coresched
from coresched.core import LoadBoundedRouter
from coresched.httpx import Flight, SharedRouter, SyncTransport, Transport

BOTH = pytest.mark.parametrize("make", [Transport, SyncTransport])


@BOTH
@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("http://w0", "workers must be URLs or a mapping from names to URLs, got 'http://w0' of type str"),
        (None, "workers must be URLs or a mapping from names to URLs, got None of type NoneType"),
        (5, "workers must be URLs or a mapping from names to URLs, got 5 of type int"),
        (["http://w0/v1"], "without /v1 at its end, got 'http://w0/v1'; the request brings it"),
        ({"w0": "https://w0/proxy/v1/"}, "worker 'w0' must have a URL without /v1 at its end"),
        ([], "workers must name at least one worker, got none"),
        (["w0:30000"], "worker 'w0:30000' must have an http or https URL such as"),
        (["10.0.0.1"], "must have an http or https URL"),
        (["http://"], "must have an http or https URL"),
        (["http://w0:port"], "must have an http or https URL"),
        (["ftp://w0"], "must have an http or https URL"),
        (["http://w0/?a=1"], "without query and fragment, got 'http://w0/.a=1'"),
        (
            ["http://me:secret@w0"],
            "^a worker's URL must hold no password, got one for 'w0'; send it in headers$",
        ),
        (["http://w0", "http://w0"], "must each have a URL of their own, got 'http://w0' a second time"),
        ({"a": "http://w0", "b": "http://w0/"}, "must each have a URL of their own"),
        ({"http://w0": 2.0}, "relative capacities go into weights"),
        ({"": "http://w0"}, "worker must not be empty"),
    ],
)
def test_bad_workers_are_refused(make: Any, workers: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(workers)


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"http://w1": 2.0}}, "weights must name workers among .'http://w0'., got 'http://w1'"),
        ({"weights": {"http://w0": 0.0}}, "weight of 'http://w0' must be above 0"),
        ({"weights": 2.0}, "weights must map names of workers to numbers, got 2.0"),
        ({"load_bound": 0.5}, "load_bound must be at least 1"),
        ({"virtual_nodes": 0}, "virtual_nodes must be at least 1"),
        ({"label_header": "x key"}, "label_header must be the name of an HTTP header, got 'x key'"),
        ({"label_header": ""}, "label_header must be the name of an HTTP header"),
        ({"inner": httpx.MockTransport(lambda request: httpx.Response(200))}, "inner must be a function"),
        ({"router": SharedRouter(["http://w1"])}, "workers must have the names of the router's workers"),
        ({"router": SharedRouter(["http://w0"]), "slack": 1}, "belong to the router; leave them out"),
        ({"router": SharedRouter(["http://w0"]), "load_bound": 2.0}, "belong to the router; leave them out"),
        (
            {"router": "sticky-bounded"},
            "router must be a router, such as SharedRouter.*got 'sticky-bounded' of",
        ),
        ({"router": LoadBoundedRouter(["http://w0"])}, "router must be a router, such as SharedRouter"),
        ({"router": SharedRouter(["http://w0"]), "weights": {}}, "belong to the router; leave them out"),
    ],
)
def test_bad_options_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(["http://w0"], **options)


def test_the_blocking_transport_refuses_a_router_to_wait_for() -> None:
    class Waiting:
        async def route(self, label: str, exclude: object = ()) -> Flight:
            raise NotImplementedError

    with pytest.raises(TypeError, match="without waiting for SyncTransport, got Waiting"):
        SyncTransport(["http://w0"], router=Waiting())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "asked", "target", "host"),
    [
        ("http://w0", "http://workers/v1/x?q=%20", "http://w0/v1/x?q=%20", "w0"),
        ("http://w0:80/", "http://workers:9000/v1/x", "http://w0/v1/x", "w0"),
        ("https://w0:8443/a/b/", "http://workers/v1/x", "https://w0:8443/a/b/v1/x", "w0:8443"),
        ("http://[::1]:30000", "https://workers/v1/x", "http://[::1]:30000/v1/x", "[::1]:30000"),
        ("http://w0/a%20b", "http://workers/", "http://w0/a%20b/", "w0"),
    ],
)
def test_the_workers_url_replaces_the_one_for_all(url: str, asked: str, target: str, host: str) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, text="yes")

    transport = SyncTransport([url], inner=lambda: httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client, coresched.label("t1"):
        assert client.post(asked, content=b"body").text == "yes"
        assert transport.router.loads() == {url: 0}  # type: ignore[attr-defined]
    assert (str(seen[0].url), seen[0].headers["host"]) == (target, host)
    assert seen[0].headers.get_list("host") == [host]
    assert seen[0].headers["content-length"] == "4"


def test_weights_shift_the_load() -> None:
    transport = SyncTransport({"a": "http://w0", "b": "http://w1"}, weights={"b": 3.0}, load_bound=1.0)
    assert isinstance(transport.router, SharedRouter)
    plain = coresched.LoadBoundedRouter({"a": 1.0, "b": 3.0}, load_bound=1.0)
    flights = [transport.router.route(f"t{i}") for i in range(100)]
    assert [flight.worker for flight in flights] == [plain.route(f"t{i}") for i in range(100)]


def test_without_httpx_the_import_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ImportError('not here')")
    finished = subprocess.run(
        [sys.executable, "-c", "import coresched, coresched.sync; print('fine'); import coresched.httpx"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"},
        capture_output=True,
        text=True,
    )
    assert finished.stdout == "fine\n"
    assert "coresched.httpx needs httpx; install it with: pip install 'coresched[httpx]'" in finished.stderr
