"""Files as they are found: compressed, cut off, empty, foreign, huge; what is said of each."""

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import pytest
import zstandard
from importer_documents import DOCUMENTS, FILE_FORMATS, RECORDINGS, SAMPLES, written

from coresched.errors import InputError
from coresched.trajectory.importers import document, unpacking
from coresched.trajectory.importers.run import ImportReport, import_traces


def refused(*paths: Path, form: str | None = None) -> str:
    with pytest.raises(InputError) as error:
        list(import_traces(paths, ImportReport(), form))
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", FILE_FORMATS)
@pytest.mark.parametrize("extension", [".gz", ".zst"])
def test_compressed_files_are_unpacked(name: str, extension: str, tmp_path: Path) -> None:
    plain = written(tmp_path, DOCUMENTS[name])
    packed = plain.with_name(plain.name + extension)
    content = plain.read_bytes()
    packed.write_bytes(
        gzip.compress(content) if extension == ".gz" else zstandard.ZstdCompressor().compress(content)
    )
    assert list(import_traces([packed], ImportReport())) == list(import_traces([plain], ImportReport()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"[project]\nname = 1", "broken JSON at line 1, column 2"),
        (b"hello", 'it begins with "hello", which is no JSON object or array, as recordings are, nor an a'),
        (b"\x00\x01ELF\xff", 'it begins with "\\u0000\\u0001ELF\ufffd", which is no JSON'),
        (b'{"id": "a", "initial_prompt_tokens": 1, "turns": []}', "this is a trace already; use it as it is"),
        (b'{"a": 1, "b": [1, 2}', "broken JSON at column 20"),
        (b'{\n "a": 1,\n "b": x}', "broken JSON at line 3, column 7"),
        (b'{"a": "\xff"}', "byte 0xff at column 8 is not UTF-8"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
        (b'{"one": 1, "two": []}', 'no known format: its first record has "one", "two"; name it with --from'),
        (b"[]", "no known format: it has no record that can be read"),
        (b"7", 'it begins with "7", which is no JSON object or array'),
        (b"\x1f\x8b\x08\x00", "this is compressed data; let the file name end in .gz"),
        (b"PK\x03\x04 and no more", "damaged zip archive"),
    ],
)  # fmt: skip
def test_one_line_says_why_nothing_can_be_imported(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert refused(path).startswith(f"nothing was imported: {path}: {said}")


def test_an_empty_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert refused(path) == f"nothing was imported: {path}: the file is empty"


def test_a_directory_a_missing_file_and_an_unknown_format_stop_before_any_work(tmp_path: Path) -> None:
    good = written(tmp_path, DOCUMENTS["bfcl"])
    assert (
        refused(good, tmp_path)
        == f"{tmp_path} is a directory; give the files in it, such as {tmp_path}/*.json"
    )
    assert refused(good, tmp_path / "none") == f"{tmp_path / 'none'}: no such file; check the path"
    assert refused(good, form="csv").startswith('format is "csv"; it must be one of mini-swe-agent, inspect')


def test_the_wrong_format_says_what_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, DOCUMENTS["atif"])
    assert refused(path, form="swe-agent").endswith(
        "object missing required field trajectory; is it swe-agent? "
        "Without --from its format is told by what is in it"
    )
    assert "zip archive" in refused(RECORDINGS / "counting.eval", form="tau2")


@pytest.mark.parametrize("name", ["bfcl", "tracelab"])  # a line by itself, and lines that belong together
def test_a_damaged_compressed_file_keeps_what_was_before_the_damage(name: str, tmp_path: Path) -> None:
    lines = written(tmp_path, DOCUMENTS[name] * 8000).read_bytes()
    packed = tmp_path / "results.jsonl.gz"
    packed.write_bytes(gzip.compress(lines, 0)[:-9000])
    report = ImportReport()
    assert sum(len(trajectory.turns) for trajectory in import_traces([packed], report)) > 1000
    (said,) = report.skipped
    assert said.startswith(f"{packed}: damaged gzip data after line ")


def test_a_bad_record_is_named_and_the_others_are_imported(tmp_path: Path) -> None:
    good, single = DOCUMENTS["bfcl"]
    path = tmp_path / "results.jsonl"
    changed = [{**single, "latency": "fast"}, {**single, "input_token_count": 0}]
    bad = ['{"id": ', '{"id": 3, "result": []}', *map(json.dumps, changed)]
    path.write_text("\n".join([json.dumps(good), *bad, json.dumps(single)]))
    report = ImportReport()
    assert [found.id for found in import_traces([path], report)] == ["multi_turn_base_0", "simple_1"]
    assert report.skipped == [
        f"{path}, line 2: broken JSON at column 7: expecting value",
        f"{path}, line 3: id: expected str, got int",
        f"{path}, line 4: latency: expected float | null, got str - at $[0][0]",
        f"{path}, line 5: input_token_count[0][0] and its output are 0.0 and 12.0; "
        "there is no text to count instead",
    ]


def test_a_first_line_that_is_broken_does_not_hide_the_format(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("{oops\n" + "\n".join(map(json.dumps, DOCUMENTS["bfcl"])))
    report = ImportReport()
    assert len(list(import_traces([path], report))) == 2
    assert len(report.skipped) == 1


def test_bad_samples_within_a_document(tmp_path: Path) -> None:
    log = json.loads(json.dumps(DOCUMENTS["inspect"]))
    log["samples"][0]["events"][3]["output"]["usage"]["input_tokens"] = "many"
    path = written(tmp_path, log)
    report = ImportReport()
    assert [found.id for found in import_traces([path], report)] == ["b_epoch_1"]
    assert report.skipped == [
        f"{path}, samples[0]: events[3].output.usage.input_tokens: expected float, got str"
    ]


def test_nan_in_a_log_is_null(tmp_path: Path) -> None:
    log = json.loads(json.dumps(DOCUMENTS["inspect"]))
    log["samples"][0]["scores"] = {"s": {"value": float("nan")}}
    path = written(tmp_path, log)
    assert "NaN" in path.read_text()
    assert len(list(import_traces([path], ImportReport()))) == 2


def test_ids_stay_unique(tmp_path: Path) -> None:
    path = written(tmp_path, DOCUMENTS["bfcl"])
    line = json.dumps({**DOCUMENTS["bfcl"][1], "id": "simple_1~2"})
    path.write_text(path.read_text() + line + "\n")
    found = [trajectory.id for trajectory in import_traces([path, path], ImportReport())]
    assert found[:3] == ["multi_turn_base_0", "simple_1", "simple_1~2"]
    assert len(set(found)) == 6


def test_ids_as_long_as_they_may_be_stay_unique(tmp_path: Path) -> None:
    line = json.dumps({**DOCUMENTS["bfcl"][1], "id": "ä" * 256})
    path = tmp_path / "results.jsonl"
    path.write_text(f"{line}\n" * 12)
    found = [trajectory.id for trajectory in import_traces([path], ImportReport())]
    assert len(set(found)) == 12
    assert found[1] == "ä" * 255 + "~2"


def test_a_pipe_is_refused_as_it_cannot_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe) == f"{pipe} is not a regular file; save what it gives to a file"


def test_an_archive_that_unpacks_to_too_much_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_DOCUMENT_BYTES", 1 << 20)
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/a_epoch_1.json", b" " * (1 << 24))
        archive.writestr("samples/b_epoch_1.json", json.dumps(DOCUMENTS["inspect"]["samples"][1]))
    report = ImportReport()
    assert [found.id for found in import_traces([path], report)] == ["b_epoch_1"]
    assert report.skipped == [f"{path}, samples/a_epoch_1.json: unpacks to more than 1 MiB"]


def test_a_document_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MAX_DOCUMENT_BYTES", 8 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"a": "' + b"x" * (20 << 20)))
    assert "longer than 8 MiB unpacked" in refused(path)


def test_an_eval_archive_that_is_damaged_inside(tmp_path: Path) -> None:
    content = bytearray((RECORDINGS / "counting.eval").read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        entry = archive.getinfo("samples/count-0_epoch_1.json")
    content[entry.header_offset + 400] ^= 0xFF
    path = tmp_path / "damaged.eval"
    path.write_bytes(content)
    report = ImportReport()
    assert [found.id for found in import_traces([path], report)] == ["count-1_epoch_1"]
    assert len(report.skipped) == 1
    assert "samples/count-0_epoch_1.json" in report.skipped[0]


def test_several_files_of_several_formats(tmp_path: Path) -> None:
    paths = []
    for name, content in DOCUMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        paths.append(written(folder, content))
    report = ImportReport()
    found = list(import_traces(paths, report))
    assert report.formats == SAMPLES
    assert (report.trajectories, report.files) == (len(found), len(paths))
    assert report.turns == sum(len(trajectory.turns) for trajectory in found)
    assert sum(report.inference.values()) == report.turns
