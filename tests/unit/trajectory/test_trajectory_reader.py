import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from coresched.errors import InputError
from coresched.trajectory import reader
from coresched.trajectory.generator import generate
from coresched.trajectory.reader import load_trajectories, read_files, read_trajectories
from coresched.trajectory.writer import write_trajectories

GOOD: dict[str, Any] = {
    "id": "t0",
    "initial_prompt_tokens": 10,
    "turns": [
        {"output_tokens": 5, "infer_s": 1.5, "env": {"duration_s": 0.5, "response_tokens": 7, "gap_s": 3}},
        {"output_tokens": 6, "infer_s": None, "env": None},
    ],
    "extra": ["ignored"],
}


def line(**changes: Any) -> bytes:
    """The good line with top-level values replaced; those set to `...` are left out."""
    fields = {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
    return json.dumps(fields).encode() + b"\n"


def turns(turn: dict[str, Any] | None = None, env: dict[str, Any] | None = None) -> list[Any]:
    """The good turns with values of turn 0 and of its environment stage replaced."""
    first, last = GOOD["turns"]
    return [{**first, "env": {**first["env"], **(env or {})}, **(turn or {})}, last]


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as refused:
        list(read_trajectories(path))
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            line(turns=turns({"output_tokens": -5})),
            "turns[0].output_tokens is -5; it must be an integer >= 1 and",
        ),
        (
            line(turns=turns({"output_tokens": "5"})),
            'turns[0].output_tokens is "5"; it must be an integer >= 1',
        ),
        (line(turns=turns({"output_tokens": 5.5})), "turns[0].output_tokens is 5.5; it must be an integer"),
        (line(turns=turns({"output_tokens": True})), "turns[0].output_tokens is true; it must be an integer"),
        (
            line(turns=turns({"kept_tokens": 9})),
            "turns[0].kept_tokens is 9; it must be an integer from 0 to outp",
        ),
        (line(turns=turns({"env": 3})), "turns[0].env is 3; it must be an object, or null in the last turn"),
        (
            line(turns=turns({"env": None})),
            "turns[0].env is null; only the last turn (here turns[1]) may be wit",
        ),
        (
            line(turns=turns(env={"duration_s": -1})),
            "turns[0].env.duration_s is -1.0; it must be a number of se",
        ),
        (
            line(turns=turns(env={"duration_s": float("nan")})),
            "turns[0].env.duration_s is NaN; it must be a numb",
        ),
        (line(turns=turns(env={"n_calls": -2})), "turns[0].env.n_calls is -2; it must be an integer >= 0"),
        (
            line(turns=turns(env={"duration_quality": "good"})),
            'turns[0].env.duration_quality is "good"; it must',
        ),
        (
            line(turns=turns(env={"duration_quality": "absent"})),
            'turns[0].env.duration_quality is "absent"; it ',
        ),
        (line(turns=[{}]), "turns[0].output_tokens is missing; add it (an integer >= 1"),
        (line(turns=[7]), "turns[0] is 7; it must be an object with output_tokens"),
        (line(turns=[]), "turns is []; it must be an array of at least one turn"),
        (line(turns={"a": 1}), 'turns is {"a": 1}; it must be an array of at least one turn'),
        (line(turns=...), "turns is missing; add it (an array of at least one turn)"),
        (line(id=...), "id is missing; add it (a text of 1 to 512 bytes in UTF-8)"),
        (line(id=""), 'id is ""; it must be a text of 1 to 512 bytes in UTF-8'),
        (line(id=17), "id is 17; it must be a text of 1 to 512 bytes in UTF-8"),
        (line(id="x" * 600), f'id is "{"x" * 56}...; it must be a text'),
        (
            line(initial_prompt_tokens=10**40),
            "initial_prompt_tokens is 1" + "0" * 40 + "; it must be an integer",
        ),
        (
            line(initial_prompt_tokens=1).replace(b": 1,", b": " + b"9" * 5000 + b","),
            "initial_prompt_tokens is 999",
        ),
        (
            line(initial_prompt_tokens=1).replace(b": 1,", b": 1e999,"),
            "initial_prompt_tokens is Infinity; it mus",
        ),
        (
            line(shared_prefix_tokens=11),
            "shared_prefix_tokens is 11; it must be an integer from 0 to initial_prom",
        ),
        (line(meta=[1]), "meta is [1]; it must be an object"),
        (line(meta={"a": 1}).replace(b'"a": 1', b'"a": 1e999'), "meta[...]: Number out of range"),
        (line(source=5), "source is 5; it must be a text, or absent"),
        (
            b"[1, 2]\n",
            "the line is [1, 2]; it must be one JSON object with id, initial_prompt_tokens and turns",
        ),
        (b'{"id": "a" "b"}\n', "broken JSON at column 12: expecting ',' delimiter; every line must be"),
        (
            b'{"id": "a", "turns": [\n',
            "broken JSON at column 23: expecting value; every line must be one whole JSON",
        ),
        (
            b'{"messages": []}\n',
            "id is missing; add it (a text of 1 to 512 bytes in UTF-8); of a recording, "
            "`coresched trace import` makes a trace",
        ),
        (
            b'{\n  "messages": []\n}\n',
            "broken JSON at column 2: expecting property name enclosed in double quotes; every line must be "
            "one whole JSON object; of a recording, `coresched trace import` makes a trace",
        ),
        (line()[:-1] + b" {}\n", "broken JSON at column "),
        (line(id="\ud800"), 'id is "\\ud800"; it must be a text of 1 to 512 bytes in UTF-8'),
        (line(extra=1).replace(b'"extra": 1', b'"extra": NaN'), "broken JSON: JSON is malformed: "),
        (
            line(id="\xff").replace(rb"\u00ff", b"\xff"),
            "byte 0xff at column 9 is not UTF-8; save the file as UTF-8",
        ),
        (b'{"id": ' + b"[" * 200_000 + b"\n", "the JSON is nested too deeply"),
        (line(id="t1"), 'id is "t1", as on line 2; an id must be unique within a file'),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_the_fix(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "traces.jsonl"
    good = [b"\n", *(line(id=f"t{n}") for n in range(1, 6))]
    path.write_bytes(b"".join(good) + data + line(id="t7"))
    assert refusal(path).startswith(f"{path}, line 7: {message}")


def test_lines_before_a_bad_one_are_yielded(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(line() + b"{\n")
    stream = read_trajectories(path)
    assert next(stream).id == "t0"
    with pytest.raises(InputError, match="line 2: broken JSON at column 2"):
        next(stream)


def test_blank_lines_windows_ends_a_byte_order_mark_and_a_missing_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n \t\r\n" + line().replace(b"\n", b"\r\n") + line(id="t1").rstrip())
    assert [trajectory.id for trajectory in read_trajectories(path)] == ["t0", "t1"]
    path.write_bytes(b"\xef\xbb\xbf" + line())
    assert [trajectory.id for trajectory in read_trajectories(path)] == ["t0"]


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jsonl") == f"{tmp_path}/none.jsonl: no such file; check the path"
    assert refusal(tmp_path).startswith(f"{tmp_path} is a directory; give a .jsonl")
    assert "cannot be opened" in refusal(tmp_path / "a\0b")
    (tmp_path / "file").touch()
    assert "cannot be opened: Not a directory" in refusal(tmp_path / "file" / "x.jsonl")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_files_without_trajectories(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert (
        refusal(tmp_path / name)
        == f"{tmp_path}/{name} holds no trajectories; every line must be one JSON object"
    )


def test_blank_lines_alone_are_no_trajectories(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n\n  \n")
    assert "holds no trajectories" in refusal(tmp_path / "a.jsonl")


def test_compressed_data_under_a_plain_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(line()))
    assert refusal(path) == f"{path}, line 1: this is compressed data; let the file name end in .gz"
    path.write_bytes(zstandard.compress(line()))
    assert refusal(path) == f"{path}, line 1: this is compressed data; let the file name end in .zst"


@pytest.mark.parametrize(("extension", "format_name"), [("gz", "gzip"), ("zst", "Zstandard")])
def test_plain_data_under_a_compressed_name(tmp_path: Path, extension: str, format_name: str) -> None:
    path = tmp_path / f"a.jsonl.{extension}"
    path.write_bytes(line())
    assert refusal(path).startswith(f"{path}: damaged {format_name} data after line 0 (")


@pytest.mark.parametrize("extension", ["gz", "zst"])
def test_compressed_data_cut_off_anywhere(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"a.jsonl.{extension}"
    write_trajectories(path, generate("tool-user", 3, 1))
    whole = path.read_bytes()
    for size in range(1, len(whole), 7):
        path.write_bytes(whole[:size])
        assert "; copy or compress the file again" in refusal(path)


def test_several_compressed_members_and_an_empty_frame_are_one_stream(tmp_path: Path) -> None:
    lines = [line(id=f"t{n}") for n in range(4)]
    for path, compress in ((tmp_path / "a.gz", gzip.compress), (tmp_path / "a.zst", zstandard.compress)):
        path.write_bytes(
            b"".join(compress(part) for part in (lines[0], b"", lines[1] + lines[2][:9], lines[2][9:]))
        )
        assert [trajectory.id for trajectory in read_trajectories(path)] == ["t0", "t1", "t2"]


def test_a_line_without_end_is_refused_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(line() + b"[" + b"1," * (1 << 20))
    assert refusal(path) == f"{path}, line 2: longer than 1 MiB; every line must be one whole record"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_damage_gives_trajectories_or_one_sentence(tmp_path_factory: Any, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    raw = bytearray(line() + line(id="t1"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(raw)
    message = ""
    try:
        list(read_trajectories(path))
    except InputError as error:
        message = str(error)
    assert message == "" or (message.startswith(str(path)) and "\n" not in message)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    def peak(count: int) -> int:
        write_trajectories(tmp_path / name, generate("tool-user", count, 3))
        tracemalloc.start()
        assert sum(1 for _ in read_trajectories(tmp_path / name)) == count
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    small, large = peak(1000), peak(4000)
    ids_seen = 3000 * 400  # 400 bytes for an id, its line number and its place in the dict is ample
    assert (tmp_path / "a.jsonl").exists() is (name == "a.jsonl")
    assert large - small < ids_seen
    assert large < 4_000_000


def test_a_shared_prefix_stays_within_its_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_bytes(line(id="a", shared_prefix_tokens=9) + line(id="b", shared_prefix_tokens=9, group="g"))
    two.write_bytes(line(id="c", shared_prefix_tokens=9) + line(id="d"))
    assert [t.group for t in read_files([one, two])] == ["file 1", "g", "file 2", None]
    assert [t.group for t in read_files([one])] == [None, "g"]
    assert [t.id for t in load_trajectories([one, str(two)])] == ["a", "b", "c", "d"]
    assert load_trajectories(one) == load_trajectories([one])


def test_a_batch_needs_unique_ids_over_all_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_bytes(line())
    two.write_bytes(line())
    with pytest.raises(InputError) as refused:
        load_trajectories([one, two])
    assert str(refused.value).startswith(
        f'{two}: id "t0" is in {one} too; in one batch every id must be unique'
    )
    assert len(list(read_files([one, two]))) == 2


def test_the_recorded_traces_are_read_as_they_are(recorded_traces: list[Path]) -> None:
    expected = {
        "swebench_gemini3pro_mini": (500, 20_163, "estimated"),
        "liveswe_gpt5mini": (45, 897, "exact"),
        "taubench_gpt4o_airline": (200, 2_454, "absent"),
        "mooncake_conversation_chains": (2_003, 5_853, "absent"),
    }
    for path in recorded_traces:
        batch = load_trajectories(path)
        qualities = {turn.env.quality for t in batch for turn in t.turns if turn.env is not None}
        found = (len(batch), sum(len(t.turns) for t in batch))
        assert (*found, qualities.pop()) == expected.pop(path.stem)
        assert not qualities
    assert not expected
