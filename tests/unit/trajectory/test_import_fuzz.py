"""Mutated recordings: each record is imported or reported, never a traceback; the others are untouched."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importer_documents import DOCUMENTS, FILE_FORMATS, RECORDINGS

from coresched.errors import InputError
from coresched.trajectory.importers.run import ImportReport, import_traces
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Trajectory
from coresched.trajectory.writer import write_trajectories

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "x", "0", "2026-01-01T00:00:00Z", "\ud83d", "1e999", "assistant", "\x00"]),
    st.sampled_from([[], {}, [[]], [None], [1, "a"], {"a": None}, [[], {}]]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with one to three of its values dropped, replaced, doubled or given another type."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        candidates = places(changed)
        if not candidates:
            break
        *path, last = draw(st.sampled_from(candidates))
        holder = changed
        for key in path:
            holder = holder[key]
        match draw(st.sampled_from(["drop", "replace", "double"])):
            case "drop":
                del holder[last]
            case "double" if isinstance(holder, list):
                holder.insert(last, copy.deepcopy(holder[last]))
            case _:
                holder[last] = copy.deepcopy(draw(VALUES))
    return changed


def imported(
    content: bytes, form: str | None, name: str = "recording.json"
) -> tuple[list[Trajectory], ImportReport]:
    report = ImportReport()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            found = list(import_traces([path], report, form))
        except InputError as error:
            found = []
            report.skipped.append(str(error))
        assert len(found) == report.trajectories
        if found:  # what was imported is a valid trace
            write_trajectories(Path(folder) / "trace.jsonl", found)
            assert load_trajectories(Path(folder) / "trace.jsonl") == found
    assert found or report.skipped
    assert all("\n" not in line for line in report.skipped)
    return found, report


def encoded(document: Any) -> bytes:
    lines = document if isinstance(document, list) else [document]
    return "\n".join(map(json.dumps, lines)).encode()


@pytest.mark.parametrize("detected", [False, True])
@pytest.mark.parametrize("name", FILE_FORMATS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=30)
@given(data=st.data())
def test_a_mutated_recording_is_imported_or_reported(name: str, detected: bool, data: st.DataObject) -> None:
    document = data.draw(mutated(DOCUMENTS[name]))
    imported(encoded(document), None if detected else name)


@pytest.mark.parametrize("name", FILE_FORMATS)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_a_recording_cut_off_or_with_other_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray(encoded(DOCUMENTS[name]))
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at : at + 3] = data.draw(st.binary(min_size=0, max_size=6))
    imported(bytes(content), data.draw(st.sampled_from([None, name])))


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_an_archive_cut_off_or_with_other_bytes(data: st.DataObject) -> None:
    content = bytearray((RECORDINGS / "counting.eval").read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at : at + 3] = data.draw(st.binary(min_size=0, max_size=6))
    imported(bytes(content), data.draw(st.sampled_from([None, "inspect"])), "log.eval")


@pytest.mark.parametrize("name", ["bfcl", "openai-messages"])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_the_other_lines_of_a_file_are_untouched(name: str, data: st.DataObject) -> None:
    first, second = DOCUMENTS[name]
    alone, _ = imported(encoded([first]), name, "recording.jsonl")
    bad = json.dumps(data.draw(mutated(second)))
    content = encoded([first]) + b"\n" + bad[: data.draw(st.integers(1, len(bad)))].encode()
    found, report = imported(content, name, "recording.jsonl")
    assert found[0] == alone[0]
    # The second line too may hold several trajectories, where its context was begun anew.
    assert len(found) > 1 or len(report.skipped) == 1


@pytest.mark.parametrize(("name", "key"), [("inspect", "samples"), ("tau2", "simulations")])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_the_other_samples_of_a_document_are_untouched(name: str, key: str, data: st.DataObject) -> None:
    document = copy.deepcopy(DOCUMENTS[name])
    whole, _ = imported(encoded(document), name)
    document[key][1] = data.draw(mutated(document[key][1]))
    found, _ = imported(encoded(document), name)
    assert found[0] == whole[0]
