"""A small valid file of each format that can be imported, as the format's documentation has it.

Of each format one file holds at least two samples; `SAMPLES` says how many. Times are Unix seconds from T.
"""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from coresched.trajectory.importers.formats import FORMATS

T = 1_800_000_000.0
RECORDINGS = Path(__file__).parent / "recordings"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(T + seconds, timezone.utc).isoformat()


def mini_swe_agent() -> dict[str, Any]:
    def reply(prompt: int, output: int, at: float, commands: int) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        actions = [{"command": "ls"}] * commands
        extra = {"actions": actions, "response": {"model": "m", "usage": usage}, "timestamp": T + at}
        return {"role": "assistant", "content": "Looking.", "extra": extra}

    def observation(at: float) -> dict[str, Any]:
        return {"role": "tool", "content": "out", "extra": {"timestamp": T + at, "raw_output": "out"}}

    refused = {"response": {"usage": {"prompt_tokens": 230, "completion_tokens": 5}}}
    return {
        "info": {"mini_version": "2.4.6"},
        "messages": [
            {"role": "system", "content": "You can run bash."},
            {"role": "user", "content": "Task: count"},
            reply(100, 20, 2.0, 2),
            observation(3.5),
            observation(3.5),
            reply(180, 10, 5.5, 1),
            observation(5.75),
            {"role": "user", "content": "No command found.", "extra": refused},
            reply(260, 30, 9.0, 1),
            {"role": "exit", "content": "done", "extra": {"exit_status": "Submitted"}},
        ],
        "trajectory_format": "mini-swe-agent-1.1",
    }


def inspect() -> dict[str, Any]:
    def model(at: float, prompt: int, output: int, seconds: float, **more: Any) -> dict[str, Any]:
        usage = {"input_tokens": prompt - 10, "input_tokens_cache_read": 10, "output_tokens": output}
        usage["total_tokens"] = prompt + output
        answer = {"choices": [{"message": {"content": "hm"}}], "usage": usage, "time": seconds}
        return {"event": "model", "timestamp": iso(at), "model": "m", "output": answer, **more}

    def tool(at: float, seconds: float, working: float | None = None) -> dict[str, Any]:
        event = {"event": "tool", "timestamp": iso(at), "completed": iso(at + seconds), "function": "bash"}
        return {**event, "id": "c", "arguments": {}, "result": "out", "working_time": working}

    def sample(name: str) -> dict[str, Any]:
        failed = {
            "event": "model",
            "timestamp": iso(0),
            "model": "m",
            "output": {"choices": []},
            "error": "500",
        }
        return {
            "id": name,
            "epoch": 1,
            "input": "Count.",
            "events": [
                {"event": "sample_init", "timestamp": iso(0)},
                {"event": "sandbox", "timestamp": iso(0), "action": "exec", "output": "a text here"},
                failed,
                model(1, 100, 20, 0.5, retries=1),
                tool(5, 3),  # at the same time as the next: 5 to 8 and 6 to 10
                tool(6, 4),
                model(6.5, 9999, 9, 1),  # a sub-agent within a tool, and its own tool
                tool(7, 0.5),
                model(11, 200, 30, 0.75),
                tool(12, 9, working=2.0),  # seven seconds of it were waiting for a slot
                model(16, 8888, 3, 1),  # and here it asked a model
                model(22, 300, 40, 1.5),
                {"event": "span_begin", "id": "s", "type": "scorers", "timestamp": iso(30)},
                model(31, 50, 5, 1, span_id="s"),
            ],
        }

    return {"version": 2, "status": "success", "eval": {"model": "m"}, "samples": [sample("a"), sample("b")]}


def openai_messages() -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "x" * 40},
        {"role": "user", "content": [{"type": "text", "text": "y" * 16}]},
        {"role": "assistant", "content": "z" * 20, "tool_calls": [call, call]},
        {"role": "tool", "content": "o" * 80},
        {"role": "tool", "content": "o" * 40},
        {"role": "assistant", "content": "w" * 12, "reasoning_content": "r" * 8},
        {"role": "user", "content": "u" * 4},
        {"role": "assistant", "content": "v" * 8},
    ]
    return [{"id": "one", "messages": messages}, {"messages": messages[:3]}]


def swe_agent() -> dict[str, Any]:
    def step(action: str, seconds: float | None) -> dict[str, Any]:
        return {"action": action, "observation": "o" * 40, "response": "r" * 20, "execution_time": seconds}

    return {
        "trajectory": [step("ls", 0.5), step("cat a", 1.25), {**step("exit", 0.0), "response": ""}],
        "history": [
            {"role": "system", "content": "s" * 40},
            {"role": "user", "content": "d" * 8, "is_demo": True},
            {"role": "assistant", "content": "e" * 8, "is_demo": True},
            {"role": "user", "content": "t" * 20},
            {"role": "assistant", "content": "r" * 20},
        ],
        "info": {"model_stats": {"tokens_sent": 50}},
    }


def tau2() -> dict[str, Any]:
    def agent(at: float, prompt: int, output: int, **more: Any) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        told = {"role": "assistant", "content": "Sure.", "usage": usage, "timestamp": iso(at)}
        return {**told, "generation_time_seconds": 0.5, **more}

    calls = [{"id": "1", "name": "get", "arguments": {}}]
    messages = [
        {"role": "assistant", "content": "Hi! How can I help you today?", "timestamp": iso(0)},
        {"role": "user", "content": "Book a flight.", "timestamp": iso(2), "usage": {"prompt_tokens": 9}},
        agent(3, 500, 20, tool_calls=calls),
        {"role": "tool", "id": "1", "content": "{}", "timestamp": iso(3.25)},
        agent(5, 600, 30),
        {"role": "user", "content": "Yes.", "timestamp": iso(9)},
        agent(10, 650, 5),
    ]
    run = {"id": "x", "task_id": "7", "trial": 0, "termination_reason": "user_stop", "messages": messages}
    info = {"agent_info": {"llm": "m"}}
    return {"info": info, "tasks": [], "simulations": [run, {**run, "trial": 1, "messages": messages[:5]}]}


def bfcl() -> list[dict[str, Any]]:
    return [
        {
            "id": "multi_turn_base_0",
            "result": [[[{"ls": "{}"}, {"pwd": "{}"}], "Done."], ["Nothing."]],
            "input_token_count": [[150, 200], [280]],
            "output_token_count": [[30, 10], [35]],
            "latency": [[0.5, 0.25], [0.75]],
        },
        {
            "id": "simple_1",
            "result": "f()",
            "input_token_count": 90,
            "output_token_count": 12,
            "latency": 1.5,
        },
    ]


def atif() -> dict[str, Any]:
    def agent(number: int, prompt: int, output: int, calls: int) -> dict[str, Any]:
        step = {"step_id": number, "source": "agent", "message": "m", "timestamp": iso(number)}
        extra = {"completion_tokens_details": {"reasoning_tokens": 4}}
        step["metrics"] = {"prompt_tokens": prompt, "completion_tokens": output, "extra": extra}
        if calls:
            call = {"tool_call_id": "1", "function_name": "bash", "arguments": {}}
            step |= {"tool_calls": [call] * calls, "observation": {"results": [{"content": "o" * 8}]}}
        return step

    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "run-1",
        "agent": {"name": "terminus", "version": "2", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "s" * 40},
            {"step_id": 2, "source": "user", "message": "u" * 40},
            agent(3, 100, 20, 2),
            {"step_id": 4, "source": "agent", "message": "", "llm_call_count": 0},
            agent(5, 150, 10, 1),
            {**agent(6, 999, 40, 0), "llm_call_count": 3, "message": "f" * 12},
        ],
    }


def otel() -> dict[str, Any]:
    def span(trace: str, number: int, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
        attributes = [
            {"key": f"gen_ai.{key}", "value": {"intValue": str(value)}} for key, value in more.items()
        ]
        attributes.append({"key": "gen_ai.operation.name", "value": {"stringValue": name.split()[0]}})
        ids = {"traceId": trace, "spanId": f"{number:016x}", "name": name}
        times = {
            "startTimeUnixNano": str(int((T + start) * 1e9)),
            "endTimeUnixNano": str(int((T + end) * 1e9)),
        }
        return {**ids, **times, "attributes": attributes}

    def usage(prompt: int, output: int) -> dict[str, Any]:
        return {"usage.input_tokens": prompt, "usage.output_tokens": output}

    def trace(name: str) -> list[dict[str, Any]]:
        failed = span(name, 2, "chat m", 0, 1)
        failed["status"] = {"code": 2}
        within = span(name, 5, "chat m", 4.5, 5, **usage(9999, 1))
        within["parentSpanId"] = f"{4:016x}"
        return [
            span(name, 9, "chat m", 10, 12, **usage(300, 40)),  # exports are in no order
            span(name, 1, "invoke_agent a", 0, 20),
            failed,
            span(name, 3, "chat m", 1, 3, **usage(100, 20)),
            span(name, 4, "execute_tool bash", 4, 7),
            span(name, 6, "execute_tool bash", 6, 9),
            within,
        ]

    spans = [{"spans": trace("a" * 32)}, {"spans": trace("b" * 32)}]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": spans}]}


def tracelab() -> list[dict[str, Any]]:
    def event(kind: str, at: float) -> dict[str, Any]:
        return {"event_type": kind, "timestamp": iso(at)}

    def tool(at: float, wall: float, internal: float | None) -> dict[str, Any]:
        return {
            "tool_name": "Bash",
            "emitted_at": iso(at),
            "result_at": iso(at + wall / 1000),
            "tool_wall_latency_ms": wall,
            "tool_internal_latency_ms": internal,
        }

    def row(session: str, number: int, prompt: int, output: int, **more: Any) -> dict[str, Any]:
        counts = {"input_tokens_total": prompt, "prefix_tokens": 0, "newly_append_tokens": prompt}
        counts |= {"output_tokens": output, "reasoning_output_tokens": 0}
        return {"session_id": session, "round_index": number, "provider": "codex", **counts, **more}

    def session(name: str) -> list[dict[str, Any]]:
        asked = [event("user_message", 0), event("reasoning", 1), event("tool_call", 2.5)]
        went_on = [event("tool_result", 8), event("text", 9)]
        again = [event("user_message", 5000), event("text", 5002)]
        tools = [tool(2.5, 4000, 1500), tool(3.0, 2000, 2000)]
        return [
            row(name, 1, 200, 30, timing_events=went_on, tools=[]),
            row(name, 0, 100, 20, timing_events=asked, tools=tools),
            row(name, 2, 260, 40, timing_events=again, tools=[]),
        ]

    return [*session("one"), *session("two")]


def mooncake() -> list[dict[str, Any]]:
    def request(at: int, prompt: int, output: int, blocks: list[int]) -> dict[str, Any]:
        return {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": blocks}

    return [
        request(0, 1100, 50, [0, 1, 2]),
        request(0, 600, 10, [0, 3]),  # shares the first block with the one before, continues nothing
        request(9, 1700, 60, [0, 1, 4, 5]),  # continues the first
        request(20, 1800, 70, [0, 1, 4, 6]),  # continues that
    ]


def bailian() -> list[dict[str, Any]]:
    def request(chat: int, parent: int, prompt: int, output: int) -> dict[str, Any]:
        lengths = {"input_length": prompt, "output_length": output, "hash_ids": [1]}
        return {"chat_id": chat, "parent_chat_id": parent, "timestamp": 1.5, **lengths, "turn": 1}

    return [
        request(1, -1, 100, 20),
        request(2, 1, 150, 10),
        request(3, 1, 140, 10),  # a second continuation of the first
        request(4, 2, 200, 30),
    ]


def replay() -> list[dict[str, Any]]:
    def inference(sample: str, turn: int, sent: float, ended: float, prompt: int) -> dict[str, Any]:
        times = {"sent_s": sent, "ended_s": ended, "worker": "w", "first_token_s": 0.1, "cached_tokens": 0}
        event = {"event": "inference", "sample": sample, "turn": turn, **times}
        return {**event, "prompt_tokens": prompt, "output_tokens": 10}

    failed = {"event": "failed-inference", "sample": "a", "turn": 0, "sent_s": 0.1, "ended_s": 4}
    stage = {"event": "environment", "sample": "a", "turn": 0, "duration_s": 2.5}
    return [
        {"event": "admission", "sample": "a", "at_s": 0.1},
        {"event": "admission", "sample": "b", "at_s": 0.1},
        {**failed, "worker": "w", "reason": "refused"},
        inference("b", 0, 0.2, 1.2, 50),
        inference("a", 0, 4.5, 5.25, 100),
        {**stage, "requested_s": 5.25, "started_s": 9.0, "ended_s": 11.51},  # 3.75 s of it for a slot
        inference("a", 1, 11.5, 12.0, 130),
        {"event": "completion", "sample": "a", "at_s": 12.0},
        {"event": "completion", "sample": "b", "at_s": 1.2},
    ]


DOCUMENTS: dict[str, Any] = {
    "mini-swe-agent": mini_swe_agent(),
    "inspect": inspect(),
    "swe-agent": swe_agent(),
    "tau2": tau2(),
    "bfcl": bfcl(),
    "atif": atif(),
    "otel": otel(),
    "tracelab": tracelab(),
    "mooncake": mooncake(),
    "bailian": bailian(),
    "replay": replay(),
    "openai-messages": openai_messages(),
}
"""By format: a document, or the list of its lines."""

FILE_FORMATS = [name for name in FORMATS if name != "recording"]
"""Those that are one file each; a recording is a folder of several."""

SAMPLES = dict.fromkeys(DOCUMENTS, 2) | {"mini-swe-agent": 1, "swe-agent": 1, "atif": 1}


def written(folder: Path, document: Any) -> Path:
    """The document as a file; a list as JSON lines."""
    lines = document if isinstance(document, list) else [document]
    path = folder / ("recording.jsonl" if isinstance(document, list) else "recording.json")
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path
