"""Request traces of serving systems: prompt and output lengths, with hashes of the prompts' blocks."""

from collections.abc import Iterator

import msgspec

from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import tokens

MOONCAKE_BLOCK_TOKENS = 512


class _Mooncake(msgspec.Struct):
    input_length: float
    output_length: float
    hash_ids: list[int]


class _Bailian(msgspec.Struct):
    chat_id: int
    parent_chat_id: int
    input_length: float
    output_length: float


class Mooncake:
    """Requests that continue one another are found by their blocks; a hash covers the prompt up to its block.

    A request continues the one that first had its longest known full block as the last, if its prompt has
    room for that one's reply and no other continues it yet. Blocks that several begin with (a system prompt)
    lead nowhere so. Only arrivals are recorded: durations are absent.
    """

    name = "mooncake"
    files = "request traces of Mooncake, JSON lines"
    tokens = "the serving system's count"
    inference = "absent"
    environment = "absent"

    def recognises(self, head: Head) -> bool:
        return {"input_length", "output_length", "hash_ids"} <= head.keys() and "chat_id" not in head

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        chains: list[Sample] = []
        open_at: dict[int, Sample] = {}  # by the hash of the last full block
        seen: set[int] = set()
        for where, record in document.records(_Mooncake):
            if isinstance(record, Skipped):
                yield record
                continue
            call = _call(record.input_length, record.output_length)
            if call is None:
                yield _no_request(where, record.input_length, record.output_length)
                continue
            prompt = call.prompt_tokens or 0
            full = record.hash_ids[: prompt // MOONCAKE_BLOCK_TOKENS]
            known = next((block for block in reversed(full) if block in open_at), None)
            if known is not None and _carries(open_at[known].calls[-1], prompt):
                chain = open_at.pop(known)
                chain.calls[-1].stage = Stage()
            else:
                known = None
                chain = Sample(f"{document.stem}-{where.removeprefix('line ') or 1}", where, [])
                chains.append(chain)
            chain.calls.append(call)
            if full and (full[-1] not in seen or full[-1] == known):
                open_at[full[-1]] = chain
            seen.update(full)
        yield from chains


class Bailian:
    """Requests name the one they continue. One that is continued twice goes on with the first of the two.

    Only arrivals are recorded: durations are absent.
    """

    name = "bailian"
    files = "request traces of Qwen-Bailian, JSON lines"
    tokens = "the serving system's count"
    inference = "absent"
    environment = "absent"

    def recognises(self, head: Head) -> bool:
        return {"chat_id", "parent_chat_id", "input_length", "output_length"} <= head.keys()

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        chains: list[Sample] = []
        open_at: dict[int, Sample] = {}
        for where, record in document.records(_Bailian):
            if isinstance(record, Skipped):
                yield record
                continue
            call = _call(record.input_length, record.output_length)
            if call is None:
                yield _no_request(where, record.input_length, record.output_length)
                continue
            chain = open_at.pop(record.parent_chat_id, None)
            if chain is None:
                chain = Sample(str(record.chat_id), where, [])
                chains.append(chain)
            else:
                chain.calls[-1].stage = Stage()
            chain.calls.append(call)
            open_at[record.chat_id] = chain
        yield from chains


def _call(prompt: float, output: float) -> Call | None:
    counted, generated = tokens(prompt), tokens(output)
    return None if not counted or generated is None else Call(counted, generated)


def _no_request(where: str, prompt: float, output: float) -> Skipped:
    return Skipped(
        where, f"input_length and output_length are {prompt:g} and {output:g}; no request has that"
    )


def _carries(call: Call, prompt: int) -> bool:
    return prompt >= (call.prompt_tokens or 0) + (call.output_tokens or 0)
