"""Which headers go on to the worker and back to the client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from coresched.gateway.headers import HeaderTextError, request_head, to_client, to_worker

HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
}


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def low(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in pairs]


def test_end_to_end_headers_go_on_in_order_and_repeated() -> None:
    given = [("Authorization", "Bearer x"), ("X-A", "1"), ("Cookie", "a=b"), ("x-a", "2"), ("X-N", "Straße")]
    assert list(to_worker(headers(*given), None).items()) == low(given)
    answered = [("Set-Cookie", "a=1"), ("Content-Length", "7"), ("Set-Cookie", "b=2")]
    assert list(to_client(answered, "http://w").items()) == [
        *low(answered),
        ("x-coresched-worker", "http://w"),
    ]


def test_what_belongs_to_one_connection_stays_there() -> None:
    given = [
        ("Host", "evil"),
        ("Content-Length", "3"),
        ("Expect", "100-continue"),
        ("Connection", "close, X-Hop"),
    ]
    given += [
        ("connection", "X-Other"),
        ("x-hop", "1"),
        ("X-OTHER", "2"),
        ("TE", "trailers"),
        ("Accept", "*/*"),
    ]
    assert list(to_worker(headers(*given), None).items()) == [("accept", "*/*")]


def test_the_label_replaces_what_the_client_sent() -> None:
    given = headers(("X-SMG-Routing-Key", "theirs"), ("X-Session-ID", "s"))
    assert list(to_worker(given, "ours").items()) == [("x-session-id", "s"), ("x-smg-routing-key", "ours")]


def test_the_label_is_also_where_vllm_looks_for_it() -> None:
    kept = to_worker(headers(), "ours")
    assert list(kept.items()) == [("x-smg-routing-key", "ours"), ("x-session-id", "ours")]


def test_a_worker_cannot_pose_as_another() -> None:
    kept = to_client([("X-Coresched-Worker", "forged")], "http://w")
    assert kept.getall("x-coresched-worker") == ["http://w"]


def test_bytes_that_cannot_go_on_as_they_are_are_refused() -> None:
    with pytest.raises(HeaderTextError, match=r"header x-name must be UTF-8, got 'Andr\\udce9'"):
        to_worker(headers(("X-Name", "Andr\udce9")), None)


def test_a_request_has_its_workers_host_and_the_length_of_its_body() -> None:
    kept = to_worker(headers(("Host", "theirs"), ("X-N", "Straße"), ("Content-Length", "9")), "task-1")
    assert request_head("POST /v1/completions?a=%2F", "w:1", kept, 2) == (
        b"POST /v1/completions?a=%2F HTTP/1.1\r\nhost: w:1\r\nx-n: Stra\xc3\x9fe\r\n"
        b"x-smg-routing-key: task-1\r\nx-session-id: task-1\r\ncontent-length: 2\r\n\r\n"
    )
    assert request_head("GET /v1/models", "w:1", CIMultiDict(), None) == (
        b"GET /v1/models HTTP/1.1\r\nhost: w:1\r\n\r\n"
    )


@pytest.mark.parametrize("evil", ["a\r\nX-Smuggled: 1", "a\nb", "a\rb", "a\0b"])
def test_one_request_cannot_be_made_into_two(evil: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        request_head("GET /", "w:1", CIMultiDict({"x-a": evil}), None)
    with pytest.raises(ValueError, match="line break"):
        request_head(f"GET /{evil}", "w:1", CIMultiDict(), None)


names = st.sampled_from(
    ["X-A", "x-b", "Accept", "TE", "Upgrade", "Keep-Alive", "Host", "Content-Length", "Content-Type"]
)
tokens = st.lists(names | st.sampled_from(["close", "keep-alive", ""])).map(", ".join)
pairs = st.tuples(names, st.text("abc", max_size=3)) | st.tuples(st.just("Connection"), tokens)


@given(st.lists(pairs))
def test_the_filter_is_the_rule(given: list[tuple[str, str]]) -> None:
    named = {
        token.strip().lower() for name, value in given if name == "Connection" for token in value.split(",")
    }
    dropped = HOP_BY_HOP | named | {"host", "content-length", "expect"}
    assert list(to_worker(headers(*given), None).items()) == low(
        [(name, value) for name, value in given if name.lower() not in dropped]
    )
