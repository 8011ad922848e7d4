"""The formats that can be imported, and which of them a file has."""

from coresched.errors import InputError
from coresched.trajectory.importers.atif import Atif
from coresched.trajectory.importers.batch_recording import BatchRecording
from coresched.trajectory.importers.bfcl import Bfcl
from coresched.trajectory.importers.document import Document
from coresched.trajectory.importers.inspect_log import InspectLog
from coresched.trajectory.importers.mini_swe_agent import MiniSweAgent
from coresched.trajectory.importers.openai_messages import OpenAiMessages
from coresched.trajectory.importers.otel import OtelGenAi
from coresched.trajectory.importers.recording import Importer, Malformed
from coresched.trajectory.importers.replay import Replay
from coresched.trajectory.importers.requests import Bailian, Mooncake
from coresched.trajectory.importers.swe_agent import SweAgent
from coresched.trajectory.importers.tau2 import Tau2
from coresched.trajectory.importers.tracelab import TraceLab
from coresched.trajectory.refusal import shown

# The order of detection: a format whose marks another's files may have too comes after that one.
_IMPORTERS: tuple[Importer, ...] = (
    MiniSweAgent(),
    InspectLog(),
    SweAgent(),
    Tau2(),
    Bfcl(),
    Atif(),
    OtelGenAi(),
    TraceLab(),
    Mooncake(),
    Bailian(),
    Replay(),
    BatchRecording(),
    OpenAiMessages(),
)

FORMATS: dict[str, Importer] = {importer.name: importer for importer in _IMPORTERS}


def importer_named(name: str) -> Importer:
    """The importer of a format. Raises InputError for one that there is not."""
    if name not in FORMATS:
        raise InputError(f"format is {shown(name)}; it must be one of {', '.join(FORMATS)}")
    return FORMATS[name]


def recognise(document: Document) -> Importer:
    """The format of a file, by its first records. Raises Malformed if it has the marks of none."""
    if document.kind == "zip":
        return FORMATS["inspect"]
    if document.kind == "folder":
        return FORMATS["recording"]
    if document.kind == "document" and document.content.lstrip()[:1] not in (b"{", b"["):
        begins = shown(document.content.lstrip()[:16].decode(errors="replace"))
        raise Malformed(
            f"it begins with {begins}, which is no JSON object or array, as recordings are, nor an archive "
            "of inspect"
        )
    heads = list(document.heads())
    for head in heads:
        for importer in _IMPORTERS:
            if importer.recognises(head):
                return importer
        if head.keys() >= {"id", "initial_prompt_tokens", "turns"}:
            raise Malformed("this is a trace already; use it as it is")
    keys = next((list(head) for head in heads if head), [])
    found = f"its first record has {_listed(keys)}" if keys else "it has no record that can be read"
    raise Malformed(f"no known format: {found}; name it with --from ({', '.join(FORMATS)})")


def _listed(keys: list[str]) -> str:
    few = ", ".join(shown(key, 24) for key in keys[:5])
    return f"{few} and {len(keys) - 5} more keys" if len(keys) > 5 else few
