"""bfcl's test cases with a sample around each, and a stage around the calls of each reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bfcl_eval import _llm_response_generation as generation
from bfcl_eval.constants.eval_config import LOCAL_SERVER_MAX_CONCURRENT_REQUEST
from bfcl_eval.model_handler import base_handler
from bfcl_eval.model_handler.local_inference.base_oss_handler import OSSHandler
from coresched_harness.held import held
from coresched_harness.run import Labels, warn_below
from coresched_harness.waits import waits_of

from coresched.client.gate import Gate, sample_in_scope
from coresched_bfcl.queries import Queries


class _CaseFailed(Exception):
    """bfcl has made a result row of a test case's failure; its sample is withdrawn."""


class Gated:
    """The gate in front of bfcl's functions of the same names. `num_threads` is bfcl's option."""

    def __init__(self, gate: Gate, labels: Labels, num_threads: int | None) -> None:
        self._gate = gate
        self._labels = labels
        self._num_threads = num_threads
        self._warned = False
        self._build_handler = generation.build_handler
        self._inference = generation.multi_threaded_inference
        self._execute = base_handler.execute_multi_turn_func_call

    @contextmanager
    def installed(self) -> Iterator[None]:
        """bfcl's modules use these functions for the block."""
        generation.build_handler = self.build_handler
        generation.multi_threaded_inference = self.multi_threaded_inference
        base_handler.execute_multi_turn_func_call = self.execute_multi_turn_func_call
        try:
            yield
        finally:
            generation.build_handler = self._build_handler
            generation.multi_threaded_inference = self._inference
            base_handler.execute_multi_turn_func_call = self._execute

    def build_handler(self, model_name: str, temperature: float) -> Any:
        """The model's handler; its requests carry the label of the sample in scope."""
        handler = self._build_handler(model_name, temperature)
        if not self._warned:
            self._warned = True
            default = LOCAL_SERVER_MAX_CONCURRENT_REQUEST if isinstance(handler, OSSHandler) else 1
            threads = default if self._num_threads is None else self._num_threads
            warn_below(self._gate, "--num-threads", threads)
        Queries(handler).install()
        return handler

    def multi_threaded_inference(self, handler: Any, test_case: Any, *flags: Any) -> Any:
        """One test case, which is a sample: its result row, with the sample's waits."""
        row: dict[str, Any] = {}
        try:
            with held(partial(self._gate.sample, self._labels.of(test_case["id"]))) as sample:
                row = self._inference(handler, test_case, *flags)
                row["coresched"] = waits_of(sample)
                if "traceback" in row:
                    raise _CaseFailed
        except _CaseFailed:
            pass
        return row

    def execute_multi_turn_func_call(self, func_call_list: Any, *context: Any, **options: Any) -> Any:
        """The calls of one reply are a stage; none, by which bfcl builds a test case's state, is not."""
        sample = sample_in_scope()
        if sample is None or not func_call_list:
            return self._execute(func_call_list, *context, **options)
        with held(sample.environment):
            return self._execute(func_call_list, *context, **options)
