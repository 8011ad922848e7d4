"""Messages between an agent, a user and an environment, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

from tau2.utils.llm_utils import generate

GREETING = "Hi! How can I help you today?"
STOP = "###STOP###"


class Side:
    """The agent or the user: a conversation with a model."""

    def __init__(
        self, llm: str, llm_args: dict[str, Any], call_name: str, first: list[dict[str, Any]]
    ) -> None:
        self.llm, self.llm_args, self.call_name = llm, llm_args, call_name
        self.messages = first

    def generate_next_message(self, message: Any, state: Any) -> tuple[dict[str, Any], Any]:
        self.messages += message
        answer = generate(self.llm, self.messages, call_name=self.call_name, **self.llm_args)
        self.messages.append(answer)
        return answer, state


class Environment:
    """Its tools are processes that take a while; `TAU2_STANDIN_CALLS` names a file of their times."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def get_response(self, call: dict[str, Any]) -> dict[str, Any]:
        start = time.monotonic()
        subprocess.run(["sleep", "0.05"], check=True)
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "create_task":
            self.tasks.append(arguments["title"])
        line = json.dumps({"start": start, "end": time.monotonic()}) + "\n"
        with open(os.environ["TAU2_STANDIN_CALLS"], "a", buffering=1) as log:
            log.write(line)
        return {"role": "tool", "tool_call_id": call["id"], "content": "ok"}


class Orchestrator:
    def __init__(
        self, agent: Side, user: Side, environment: Environment, task: Any, timeout: float | None
    ) -> None:
        self.agent, self.user, self.environment, self.task = agent, user, environment, task
        self.timeout = timeout
        self.done, self.timed_out = False, False
        self.to_user = True
        self.message: list[dict[str, Any]] = [{"role": "user", "content": GREETING}]
        self.steps = 0

    def run(self) -> int:
        began = time.perf_counter()
        while not self.done:
            self.step()
            if self.timeout is not None and time.perf_counter() - began >= self.timeout and not self.done:
                self.done = self.timed_out = True
        return self.steps

    def step(self) -> None:
        self.steps += 1
        if self.to_user:
            answer, _ = self.user.generate_next_message(self.message, None)
            self.done = answer["content"] == STOP
            self.message, self.to_user = [{"role": "user", "content": answer["content"]}], False
            return
        answer, _ = self.agent.generate_next_message(self.message, None)
        while answer.get("tool_calls"):
            results = self._execute_tool_calls(answer["tool_calls"])
            answer, _ = self.agent.generate_next_message(results, None)
        self.message, self.to_user = [{"role": "user", "content": answer["content"]}], True

    def _execute_tool_calls(self, tool_calls: list[Any]) -> list[Any]:
        return [self.environment.get_response(call) for call in tool_calls]
