"""The model directory that a config.json alone is made into."""

import json
from pathlib import Path

import pytest
from coresched_engine.virtual.model_config import config_file, model_name
from coresched_simdevice.model_directory import has_tokenizer, write_model_directory

from coresched.errors import InputError

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 1000}


def saved(folder: Path, config: object) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


def test_the_config_is_kept_and_every_byte_is_a_token(tmp_path: Path) -> None:
    config = saved(tmp_path / "mine", CONFIG)
    (config.parent / "configuration_mine.py").write_text("# a class\n")
    assert not has_tokenizer(config.parent)
    made = tmp_path / "scratch" / "mine"
    write_model_directory(config_file(str(config.parent)), made)
    assert has_tokenizer(made)
    assert (made / "config.json").read_bytes() == config.read_bytes()
    assert (made / "configuration_mine.py").exists()
    tokenizer = json.loads((made / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert len(set(vocabulary.values())) == len(vocabulary) == 259
    assert (vocabulary["A"], vocabulary["Ġ"], vocabulary["Ċ"], vocabulary["ÿ"]) == (65, 32, 10, 255)
    assert [token["id"] for token in tokenizer["added_tokens"]] == [256, 257, 258]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/models/Qwen3-8B/config.json", "Qwen3-8B"),
        ("/models/qwen3.json", "qwen3"),
        ("/models/Qwen3.5-4B.json", "Qwen3.5-4B"),
        ("/config.json", "model"),
        ("/models/qwen:8b/config.json", "qwen-8b"),
    ],
)
def test_a_model_is_called_as_its_file_or_folder(file: str, name: str) -> None:
    assert model_name(Path(file)) == name


def test_a_config_that_is_a_link_is_called_as_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = saved(tmp_path / "blobs", CONFIG).rename(tmp_path / "blobs" / "0a1b2c")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").symlink_to(blob)
    monkeypatch.chdir(tmp_path / "mine")
    assert model_name(Path("config.json")) == "mine"


@pytest.mark.parametrize(
    "config", [CONFIG | {"vocab_size": 100}, CONFIG | {"text_config": {"vocab_size": 9}}]
)
def test_a_vocabulary_too_small_for_bytes_is_refused(tmp_path: Path, config: object) -> None:
    with pytest.raises(InputError, match="vocab_size is"):
        write_model_directory(saved(tmp_path / "mine", config), tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "is not JSON"), ("[]", "has no architectures"), ("{}", "has no architectures")],
)
def test_a_file_that_is_no_config_is_named(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=f"--model-config .*config.json: {words}"):
        config_file(str(tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        config_file(str(tmp_path / "none.json"))
