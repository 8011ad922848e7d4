"""From a Hugging Face config.json to the model's architecture, or to the error that says what is missing."""

import json
from pathlib import Path

from coresched.capacity.architecture import ATTENTION, BOTH, STATE, Architecture
from coresched.capacity.families import READERS, STATELESS
from coresched.capacity.fields import MAX_CONTEXT, MAX_LAYERS, Fields, one_line, shown
from coresched.errors import InputError

MAX_BYTES = 16 << 20


def read_architecture(path: str | Path) -> Architecture:
    """Reads a config.json, or the one in the folder `path`.

    Raises InputError naming the file, the field, its value and the fix: for a file that cannot be read, an
    unknown class, a missing or unusable field, and for fields that contradict each other.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    return parse_architecture(_load(file, one_line(str(file))), one_line(str(file)))


def _load(file: Path, name: str) -> object:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise InputError(f"{name}: cannot be read ({reason}); give a readable config.json") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{name}: is larger than {MAX_BYTES >> 20} MiB; give the model's config.json")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:  # also an integer of thousands of digits
        reason = str(problem).splitlines()[0]
        raise InputError(f"{name}: is not JSON ({reason}); give the model's config.json") from None


def parse_architecture(config: object, source: str) -> Architecture:
    """The same from the decoded JSON; `source` is what messages call it."""
    if not isinstance(config, dict):
        raise InputError(f"{source}: holds {shown(config)}; give a config.json with one object")
    root = Fields(config, source)
    model_class = _model_class(root)
    fields = root.section("text_config") if root.has("text_config") else root
    attention, state, order = READERS[model_class](fields)
    attention_layers = sum(letter in (ATTENTION, BOTH) for letter in order)
    state_layers = sum(letter in (STATE, BOTH) for letter in order)
    if attention.kind != "none" and not attention_layers:
        raise InputError(f"{source}: no layer of {model_class} is attention; check the layer types")
    return Architecture(
        source=source,
        model_class=model_class,
        attention=attention,
        state=state if state_layers else STATELESS,
        attention_layers=attention_layers,
        state_layers=state_layers,
        order=order,
        dtype=_dtype(root, fields),
        ssm_dtype=fields.dtype("mamba_ssm_dtype"),
        ssm_cache_dtype=fields.dtype("mamba_ssm_cache_dtype"),
        mtp_layers=_mtp_layers(fields),
        max_context=fields.optional_count("max_position_embeddings", "model_max_length", maximum=MAX_CONTEXT),
        kv_quantized=_asks_for_quantised_kv(root) or _asks_for_quantised_kv(fields),
    )


def _model_class(root: Fields) -> str:
    names = root.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise root.refusal("architectures", "give an array with the one model class")
    if names[0] not in READERS:
        raise root.refusal("architectures", f"unknown class; known are {', '.join(sorted(READERS))}")
    return names[0]


def _dtype(root: Fields, fields: Fields) -> str | None:
    """The outer object's dtype, else the text model's, as the engines look it up."""
    outer, inner = root.dtype("dtype", "torch_dtype"), fields.dtype("dtype", "torch_dtype")
    if outer and inner and outer != inner:
        name = root.present("dtype", "torch_dtype")
        raise root.refusal(name, f"that of {fields.path}dtype is {inner}; make them equal")
    return outer or inner


def _mtp_layers(fields: Fields) -> int:
    name = fields.present("num_nextn_predict_layers", "mtp_num_hidden_layers")
    layers = fields.optional_count(name, minimum=0, maximum=MAX_LAYERS) or 0
    if layers and fields.flag("mtp_use_kda"):
        raise fields.refusal("mtp_use_kda", f"prediction layers with KDA are not priced; set {name} to 0")
    return layers


def _asks_for_quantised_kv(fields: Fields) -> bool:
    """Whether quantization_config names a KV cache format, at its top or in ModelOpt's inner object."""
    for name in ("quantization_config", "compression_config"):
        if not fields.has(name):
            continue
        outer = fields.section(name)
        parts = [outer]
        if isinstance(outer.values.get("quantization"), dict):
            parts.append(outer.section("quantization"))
        if any(part.has(key) for part in parts for key in ("kv_cache_scheme", "kv_cache_quant_algo")):
            return True
    return False
