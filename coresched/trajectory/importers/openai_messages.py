"""Chat messages as OpenAI's API has them, one conversation a line: text, and seldom anything else."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coresched.trajectory.importers.document import Document, Head, convert
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.importers.usage import Usage


class _Message(msgspec.Struct):
    role: str
    content: Any = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    reasoning_content: Any = None
    usage: Usage | None = None


class _Conversation(msgspec.Struct):
    messages: list[_Message]
    tools: Any = None
    id: str | int | None = None
    task_id: str | int | None = None
    instance_id: str | int | None = None
    model: str | None = None


class OpenAiMessages:
    """Each assistant message is a model call; what stands between two is the stage, of unknown duration."""

    name = "openai-messages"
    files = "chat messages, a conversation a line"
    tokens = "the provider's usage"
    inference = "absent"
    environment = "absent"

    def recognises(self, head: Head) -> bool:
        return head.get("messages") is list or {"role", "content"} <= head.keys()

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        return document.each(Any, lambda where, record: _sample(document.stem, where, record, count))


def _sample(stem: str, where: str, record: Any, count: TokenCounter) -> Sample:
    conversation = convert({"messages": record} if isinstance(record, list) else record, _Conversation)
    stated = (conversation.id, conversation.task_id, conversation.instance_id)
    name = next((str(value) for value in stated if value is not None), None)
    if name is None:
        name = f"{stem}-{where.removeprefix('line ')}" if where else stem
    sample = Sample(name, where, [], conversation.model)
    added = count.message(conversation.tools)
    call: Call | None = None
    for message in conversation.messages:
        text = count.message([message.content, message.tool_calls, message.function_call])
        if message.role != "assistant":
            added += text
            if call is not None and call.stage is None:
                kind = "user" if message.role == "user" else message.role
                call.stage = Stage(kind=kind)
            continue
        reasoning = count.message(message.reasoning_content)
        call = Call(
            added_text_tokens=added,
            reply_text_tokens=text + reasoning,
            reasoning_tokens=reasoning,
        )
        if message.usage is not None:
            message.usage.fill(call)
        calls = len(message.tool_calls or ()) or (message.function_call is not None)
        if calls:
            call.stage = Stage(n_calls=int(calls), kind="tool")
        sample.calls.append(call)
        added = 0
    if not conversation.messages:
        raise Malformed("messages is empty")
    return sample
