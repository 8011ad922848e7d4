"""A small catalogue of public models, with the source of every entry; what no source gives stays unknown."""

import difflib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import msgspec

from coresched.capacity.architecture import Architecture, Attention, State
from coresched.capacity.fields import shown
from coresched.errors import InputError


@dataclass(frozen=True)
class CatalogueEntry:
    """One model of the catalogue; None is a dimension that no public source gives."""

    model_class: str | None
    attention: Attention | None
    state: State | None
    attention_layers: int | None
    state_layers: int | None
    order: str | None
    dtype: str
    mtp_layers: int | None
    sources: tuple[str, ...]
    """Where the dimensions are from: addresses, model cards, and files of public repositories."""
    unknown: tuple[str, ...]
    """What was looked for and not found."""
    ssm_dtype: str | None = None
    max_context: int | None = None
    aliases: tuple[str, ...] = field(default=())


class _File(msgspec.Struct, forbid_unknown_fields=True):
    note: str
    models: dict[str, CatalogueEntry]


@cache
def catalogue() -> dict[str, CatalogueEntry]:
    """Every entry by its name."""
    text = resources.files("coresched.capacity").joinpath("catalogue.json").read_bytes()
    return msgspec.json.decode(text, type=_File).models


@cache
def _names() -> dict[str, str]:
    """The name of an entry by each of its names in lower case."""
    return {name.lower(): key for key, entry in catalogue().items() for name in (key, *entry.aliases)}


def is_catalogued(name: str) -> bool:
    """Whether the catalogue has a model of this name, in whatever case."""
    return name.lower() in _names()


def similar_models(name: str) -> list[str]:
    """At most three of the catalogue's names that look like ``name``, the most similar first."""
    return [_names()[match] for match in difflib.get_close_matches(name.lower()[:200], _names(), n=3)]


def unknown_model(name: str) -> InputError:
    """The error for a name that is neither a file nor in the catalogue, with the names that look like it."""
    close = similar_models(name)
    near = f"the catalogue has {', '.join(close)}" if close else f"the catalogue has {', '.join(catalogue())}"
    return InputError(
        f"model {shown(name)} is neither a config.json, a folder with one, nor in the catalogue; "
        f"give such a path, or a name ({near})"
    )


def catalogue_architecture(name: str) -> Architecture:
    """The architecture of a catalogued model. Raises InputError for another name or an unknown class."""
    if not is_catalogued(name):
        raise unknown_model(name)
    key = _names()[name.lower()]
    entry = catalogue()[key]
    if entry.model_class is None or entry.attention is None or entry.state is None:
        raise InputError(f"{key}: the model class is unknown, no public source gives it; give a config.json")
    return Architecture(
        source=key,
        model_class=entry.model_class,
        attention=entry.attention,
        state=entry.state,
        attention_layers=entry.attention_layers,
        state_layers=entry.state_layers,
        order=entry.order,
        dtype=entry.dtype,
        ssm_dtype=entry.ssm_dtype,
        ssm_dtype_unknown="cfg_ssm_dtype" in entry.unknown,
        mtp_layers=entry.mtp_layers,
        max_context=entry.max_context,
    )
