"""What smg lists and answers, read without one; and what is said where it is not what it should be."""

import re
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import pytest
from coresched_smg import MintedKeys, SmgRouter, SyncTransport, Transport
from coresched_smg.checking import ROUTED_WORKER, check_probe, probes
from coresched_smg.listing import read_listing

from coresched.errors import InputError

URLS = ["http://10.0.0.1:30000", "http://10.0.0.2:30000", "http://10.0.0.3:30000"]


def answer(status: int = 200, *, path: str = "/workers", **content: Any) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", f"http://smg:30000{path}"), **content)


def worker(url: str, *models: str, healthy: bool = True, kind: str = "regular") -> dict[str, Any]:
    return {
        "url": url,
        "model_id": models[0],
        "models": [{"id": model} for model in models],
        "is_healthy": healthy,
        "worker_type": kind,
    }


def test_the_workers_of_the_only_model_are_listed_in_order_with_their_health() -> None:
    listed = [worker(URLS[1], "qwen"), worker(URLS[0], "qwen", healthy=False)]
    listing = read_listing(answer(json={"workers": listed}), None)
    assert listing.model == "qwen"
    assert list(listing.healthy.items()) == [(URLS[1], True), (URLS[0], False)]


def test_a_named_model_has_its_own_workers() -> None:
    listed = [worker(URLS[0], "a"), worker(URLS[1], "b", "a"), worker(URLS[2], "a", kind="prefill")]
    assert list(read_listing(answer(json={"workers": listed}), "a").healthy) == URLS[:2]
    assert list(read_listing(answer(json={"workers": listed}), "b").healthy) == [URLS[1]]
    with pytest.raises(InputError, match=r"model must name one of the models behind smg, \['a', 'b'\]"):
        read_listing(answer(json={"workers": listed}), None)
    with pytest.raises(InputError, match=r"lists no worker for the model 'c', only for \['a', 'b'\]"):
        read_listing(answer(json={"workers": listed}), "c")


@pytest.mark.parametrize("listed", [{}, {"workers": [{"url": "http://a"}]}, {"workers": 3}, []])
def test_what_is_no_listing_is_refused(listed: object) -> None:
    with pytest.raises(InputError, match=r"smg:30000/workers must list workers as smg 1\.13 does, got"):
        read_listing(answer(json=listed), None)


def test_an_smg_without_workers_and_one_that_wants_a_key_say_so() -> None:
    for listed in ([], [worker(URLS[0], "a", kind="prefill")]):
        with pytest.raises(
            InputError, match=r"lists no regular worker; start smg with --worker-urls, and wait"
        ):
            read_listing(answer(json={"workers": listed}), None)
    with pytest.raises(InputError, match="it answered 401: 'who are you'; give the URL of smg itself"):
        read_listing(answer(401, text="who are you"), None)


@pytest.mark.parametrize("count", [2, 3])
def test_probes_that_go_wrong_half_of_the_time_are_hardly_all_right_by_chance(count: int) -> None:
    keys = MintedKeys(URLS[:count])
    made = list(probes(keys, URLS[:count]))
    assert count ** -len(made) <= 2**-10
    assert all(keys.home(key) == url for url, key in made)
    assert len({key for _, key in made}) == len(made)


def test_a_probe_that_went_elsewhere_or_nowhere_is_refused() -> None:
    check_probe(URLS[0], answer(500, headers={ROUTED_WORKER: URLS[0]}))
    with pytest.raises(InputError, match=f"minted for worker {URLS[0]} to {URLS[1]}; start smg 1.13"):
        check_probe(URLS[0], answer(headers={ROUTED_WORKER: URLS[1]}))
    with pytest.raises(InputError, match=r"answered 503 to .*: 'no worker'; .*sglang-router tells"):
        check_probe(URLS[0], answer(503, path="/v1/completions", text="no worker"))
    with pytest.raises(
        InputError, match=r"answered 401: 'no key'; give a key that smg takes for completions"
    ):
        check_probe(URLS[0], answer(401, text="no key"))
    check_probe(URLS[0], answer(401, headers={ROUTED_WORKER: URLS[0]}))  # the worker's own answer


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "url must be smg's http or https URL such as 'http://127.0.0.1:30000', got None"),
        ("127.0.0.1:30000", "url must be smg's http or https URL such as"),
        ("http://smg:port", "got 'http://smg:port': Invalid port: 'port'"),
        (
            "http://me:s3cret@smg",
            "without a password, got one for 'smg'; give headers={'Authorization': ...}",
        ),
        ("http://smg/v1", "url must be smg's URL without /v1 at its end"),
    ],
)
def test_what_is_no_url_of_smg_is_refused_before_it_is_asked(url: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)) as caught:
        SmgRouter(url)
    assert "s3cret" not in str(caught.value)


def test_an_smg_whose_workers_are_all_unhealthy_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [worker(URLS[0], "a", healthy=False), worker(URLS[1], "a", healthy=False)]
    monkeypatch.setattr(httpx.Client, "request", lambda *_, **__: answer(json={"workers": listed}))
    with pytest.raises(InputError, match=r"^smg at http://smg:30000 has no healthy worker for the model 'a'"):
        SmgRouter("http://smg:30000/")


def test_a_worker_that_led_elsewhere_is_out_until_smg_lists_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, reachable = MintedKeys(URLS), threading.Event()

    def asked(_: httpx.Client, method: str, path: str, **sent: Any) -> httpx.Response:
        if method == "POST":
            return answer(headers={ROUTED_WORKER: keys.home(sent["headers"]["x-smg-routing-key"])})
        if not reachable.is_set():
            raise httpx.ConnectError("refused")
        return answer(json={"workers": [worker(url, "a") for url in URLS]})

    monkeypatch.setattr(httpx.Client, "request", asked)
    reachable.set()
    with SmgRouter("http://smg:30000", refresh_s=0.01) as smg:
        reachable.clear()
        flight = smg.route("t")
        chosen = flight.worker
        smg.answered({ROUTED_WORKER: next(url for url in URLS if url != chosen)}, flight)
        flight.end()
        time.sleep(0.05)
        assert smg.out() == {chosen}
        reachable.set()
        until = time.monotonic() + 10
        while smg.out() and time.monotonic() < until:
            time.sleep(0.005)
        assert smg.out() == set()


@pytest.mark.parametrize(
    "headers", [3, {"Authorization": 3}, {"Authorization": "Bearer \u00e9"}, ["Authorization"]]
)
def test_what_are_no_headers_is_refused_and_not_shown(headers: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^headers must ") as caught:
        SmgRouter("http://127.0.0.1:1", headers=headers)
    assert "\u00e9" not in str(caught.value)


@pytest.mark.parametrize("transport", [SyncTransport, Transport])
def test_a_transport_without_an_smg_router_says_what_to_give(transport: Any) -> None:
    with pytest.raises(TypeError, match=r"^smg must be an SmgRouter, .* got 'http://smg'$"):
        transport("http://smg")


def test_keys_refuse_what_are_no_workers() -> None:
    with pytest.raises(LookupError, match="worker must be one of"):
        MintedKeys(URLS[:2]).key(URLS[2])
    for wrong in ([], [URLS[0], URLS[0]]):
        with pytest.raises(ValueError, match="workers must be different URLs, at least one"):
            MintedKeys(wrong)
    with pytest.raises(TypeError, match="workers must be URLs"):
        MintedKeys(URLS[0])


def test_without_blake3_the_extra_is_named() -> None:
    program = "import sys; sys.modules['blake3'] = None; import coresched_smg"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (
        "ImportError: coresched_smg needs blake3; install it with: pip install 'coresched[smg]'"
        in done.stderr
    )
