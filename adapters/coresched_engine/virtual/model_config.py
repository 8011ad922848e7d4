"""A model as its config.json describes it, and the folder of it that an engine reads."""

import json
import os
from pathlib import Path

from coresched.capacity.fields import one_line
from coresched.errors import InputError


def config_file(path: str) -> Path:
    """The config.json that ``path`` names, itself or its folder. Raises InputError naming the fix."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    name = one_line(str(file))
    try:
        config = json.loads(file.read_bytes())
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise InputError(
            f"--model-config {name}: cannot be read ({reason}); give the model's config.json, or a folder "
            "with it"
        ) from None
    except (ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f"--model-config {name}: is not JSON ({reason}); give a config.json") from None
    if not isinstance(config, dict) or not isinstance(config.get("architectures"), list):
        raise InputError(f"--model-config {name}: has no architectures; give the model's config.json")
    return file


def model_name(config: Path) -> str:
    """What the model of a config file is called: the file's name, or its folder's where it is config.json."""
    path = Path(os.path.abspath(config))  # as it is named: in Hugging Face's cache it is a link to a hash
    name = path.stem if path.stem != "config" else path.parent.name
    return name.replace(":", "-") or "model"  # which SGLang does not take in a model's name


def write_config_directory(config: Path, folder: Path) -> None:
    """Fill ``folder`` with the config and what it needs to be read; no tokenizer."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config.read_bytes())
    for source in config.parent.glob("*.py"):  # a configuration class that is not the engine's own
        (folder / source.name).write_bytes(source.read_bytes())
