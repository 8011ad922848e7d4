"""Minted keys, held to a plain-Python ring that is searched from end to end."""

from __future__ import annotations

from blake3 import blake3
from coresched_smg.keys import LONGEST_KEY, MintedKeys
from coresched_smg.ring import HashRing
from hypothesis import given
from hypothesis import strategies as st

URLS = st.lists(
    st.integers(0, 99).map(lambda host: f"http://10.0.0.{host}:30000"), min_size=1, max_size=6, unique=True
)
LABELS = st.text(min_size=1, max_size=128)


def place(text: str) -> int:
    return int.from_bytes(blake3(text.encode()).digest()[:8], "little")


def twin(urls: list[str], key: str, out: list[str]) -> str:
    """The open worker whose next point clockwise is nearest."""
    at = place(key)
    distances = [((place(f"{url}#{i}") - at) % 2**64, url) for url in urls for i in range(150)]
    return min(point for point in distances if point[1] not in out)[1]


@given(urls=URLS, key=st.text(max_size=20), data=st.data())
def test_the_ring_finds_the_nearest_open_worker(urls: list[str], key: str, data: st.DataObject) -> None:
    out = data.draw(st.lists(st.sampled_from(urls), unique=True, max_size=len(urls) - 1))
    assert HashRing(urls).home(key, out) == twin(urls, key, out)


@given(urls=URLS, label=LABELS)
def test_a_key_leads_to_its_worker_and_a_header_can_hold_it(urls: list[str], label: str) -> None:
    keys = MintedKeys(urls)
    for url in urls:
        key = keys.key(url, label)
        assert keys.home(key) == twin(urls, key, []) == url
        assert key == MintedKeys(reversed(urls)).key(url, label)
        assert len(key) <= LONGEST_KEY
        assert key.isascii()
        assert key.isprintable()
        assert key == key.strip()


@given(urls=URLS, labels=st.lists(LABELS, min_size=2, max_size=8, unique=True))
def test_no_two_labels_have_the_same_key(urls: list[str], labels: list[str]) -> None:
    keys = MintedKeys(urls)
    for url in urls:
        assert len({keys.key(url, label) for label in labels}) == len(labels)


@given(urls=URLS, label=LABELS)
def test_a_key_stays_good_when_other_workers_leave(urls: list[str], label: str) -> None:
    key = MintedKeys(urls).key(urls[0], label)
    assert HashRing(urls[: len(urls) // 2 + 1]).home(key) == urls[0]
