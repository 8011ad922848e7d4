"""In place of the model: its weights' memory, and nothing to compute with."""

from typing import Any

from coresched_simdevice.configuration import device
from coresched_simdevice.memory import GIB, ledger


def load_model(runner: Any) -> None:
    """In place of ``ModelRunner.load_model``: books the weights and leaves what its callers read."""
    import torch
    from sglang.srt.configs.shared_experts import SharedExpertsConfig
    from sglang.srt.model_executor.model_runner_components.load_model_utils import resolve_sliding_window_size
    from sglang.srt.platforms import current_platform

    from coresched_simdevice.device import SimulatedPlatform

    if not isinstance(current_platform, SimulatedPlatform):
        raise RuntimeError(
            "coresched_simdevice: its hooks are loaded, but SGLang's platform is another one; unset "
            "SGLANG_PLATFORM, or set it to coresched-simdevice"
        )

    class WeightlessModel(torch.nn.Module):  # type: ignore[misc]  # untyped without torch
        shared_experts_config = SharedExpertsConfig()

        def forward(self, input_ids: Any, positions: Any, forward_batch: Any) -> Any:
            raise RuntimeError("a model on the simulated device of coresched has no weights to compute with")

    class WeightlessLoader:
        preloaded_weights_bytes = 0

    ledger().weights = device().weights_bytes
    runner.model = WeightlessModel()
    runner.loader = WeightlessLoader()
    runner.startup_weight_load = None
    runner.sliding_window_size = resolve_sliding_window_size(runner.model, runner.model_config)
    runner.prefill_aware_swa = False
    runner.dtype = runner.model_config.dtype
    runner.weight_load_mem_usage = ledger().weights / GIB
    runner.weight_load_time = 0.0


def init_attention_backends(runner: Any) -> None:
    """In place of ``ModelRunner.init_attention_backends``."""
    runner.attn_backend = None
    runner.decode_attn_backend = None
    runner.decode_attn_backend_group = []


def init_cuda_graphs(runner: Any, capture_decode_cuda_graph: bool = True) -> None:
    """In place of ``ModelRunner.init_cuda_graphs``."""
    runner.eager_runner = None
    runner.prefill_cuda_graph_runner = None
    runner.decode_cuda_graph_runner = None
