"""Models outside the golden table, from their config.json, with each number derived by hand beside it."""

from pathlib import Path

import pytest
from unit.capacity.model_configs import CONFIGS, write_config

from coresched import footprint

# model, tp, engine -> bytes a KV token, bytes a state
EXPECTED = {
    # 36 layers with both; 2 KV heads of 64; 24 heads of 64, state 128, 1 group, kernel 4
    #   KV 36 * 2 * 2 * 64 * 2 = 18,432; conv (1,536 + 2 * 1 * 128) * 3 = 5,376; ssm 24 * 64 * 128 = 196,608
    #   SGLang 36 * (5,376 * 2 + 196,608 * 4) = 28,698,624
    ("Falcon-H1-0.5B", 1, "sglang"): (18_432, 28_698_624),
    #   vLLM, bf16: 403,968 a layer, 512 a token: 16 * ceil(403,968 / 8,192) = 800 tokens, page 409,600;
    #   36 and 36 layers make 1 + 1 groups of 36: 36 * 409,600 = 14,745,600
    ("Falcon-H1-0.5B", 1, "vllm"): (18_432, 14_745_600),
    #   tp 2: one KV head a rank; the group is kept twice, so conv (1,536 + 2 * 2 * 128) / 2 * 3 = 3,072;
    #   36 * (3,072 * 2 + 98,304 * 4)
    ("Falcon-H1-0.5B", 2, "sglang"): (9_216, 14_376_960),
    # 4 attention and 36 Mamba2 layers; 4 KV heads of 128; 48 heads of 64, state 128
    #   KV 4 * 2 * 4 * 128 * 2 = 8,192; conv (3,072 + 256) * 3 = 9,984; ssm 48 * 64 * 128 = 393,216
    #   SGLang 36 * (9,984 * 2 + 393,216 * 4) = 57,341,952, for Granite's class does not pass mamba_ssm_dtype
    ("Granite-4.0-H-1B", 1, "sglang"): (8_192, 57_341_952),
    #   vLLM 806,400 a layer, 2,048 a token: 16 * ceil(24.6) = 400 tokens, page 819,200; 1 + 9 groups of 4
    ("Granite-4.0-H-1B", 1, "vllm"): (8_192, 9 * 4 * 819_200),
    # 4 attention, 27 Mamba2 and 25 MLP layers; 8 KV heads of 128; 128 heads of 80, state 128, 8 groups
    #   KV 4 * 2 * 8 * 128 * 2 = 16,384; conv (10,240 + 2 * 8 * 128) * 3 = 36,864; ssm 1,310,720
    #   SGLang 27 * (36,864 * 2 + 1,310,720 * 4) = 143,548,416
    ("Nemotron-Nano-9B-v2", 1, "sglang"): (16_384, 143_548_416),
    #   vLLM 5,316,608 a layer, 4,096 a token: 16 * ceil(81.1) = 1,312 tokens, page 5,373,952;
    #   27 layers in 7 groups of 4, one of them padded
    ("Nemotron-Nano-9B-v2", 1, "vllm"): (16_384, 7 * 4 * 5_373_952),
    # 4 attention and 28 Mamba1 layers; 8 KV heads of 128; 8,192 channels, state 16
    #   KV 4 * 2 * 8 * 128 * 2 = 16,384; conv 8,192 * 3; ssm 8,192 * 16
    #   vLLM, bf16: 311,296 a layer, 4,096 a token: 16 * ceil(4.75) = 80 tokens, page 327,680; 7 groups of 4
    ("Jamba-1.5-Mini", 1, "vllm"): (16_384, 7 * 4 * 327_680),
    #   tp 4: 1,024 a token, 77,824 a layer: again 80 tokens, page 81,920
    ("Jamba-1.5-Mini", 4, "vllm"): (4_096, 7 * 4 * 81_920),
    # 64 Mamba1 layers and no attention; 8,192 channels, state 16: 64 * (24,576 * 2 + 131,072 * 4)
    ("Falcon-Mamba-7B", 1, "sglang"): (0, 36_700_160),
    #   vLLM, bf16 and unpadded, one group: 64 * (24,576 + 131,072) * 2
    ("Falcon-Mamba-7B", 1, "vllm"): (0, 19_922_944),
    # 64 Mamba2 layers; 128 heads of 64, state 128, 8 groups: conv (8,192 + 2,048) * 3, ssm 1,048,576
    ("Mamba-Codestral-7B", 8, "sglang"): (0, 64 * (30_720 // 8 * 2 + 1_048_576 // 8 * 4)),
    # 6 attention layers of 8 KV heads of 64, 10 short convs over 2,048 channels, 2 columns kept
    #   KV 6 * 2 * 8 * 64 * 2; states 10 * 2,048 * 2 * 2 = 81,920
    ("LFM2-1.2B", 1, "sglang"): (12_288, 81_920),
    #   vLLM: 8,192 a layer fit into a page of 16 tokens of 2,048; 10 layers in 2 groups of 6
    ("LFM2-1.2B", 1, "vllm"): (12_288, 2 * 6 * 32_768),
    # 6 attention layers, 18 short convs; vLLM 3 groups of 6, tp 4: pages of 16 * 512
    ("LFM2-8B-A1B", 1, "sglang"): (12_288, 18 * 2_048 * 2 * 2),
    ("LFM2-8B-A1B", 4, "vllm"): (3_072, 3 * 6 * 8_192),
    # 61 layers of (512 + 64) * 2, the same on every rank
    ("DeepSeek-V3", 1, "sglang"): (70_272, 0),
    ("DeepSeek-V3", 8, "vllm"): (70_272, 0),
    # 4 MLA and 16 lightning layers; 16 heads of 128: 16 * 128 * 128 elements, no conv
    #   KV 4 * 576 * 2; SGLang fp32: 16 * 262,144 * 4
    ("BailingMoeV2_5", 1, "sglang"): (4_608, 16_777_216),
    #   vLLM bf16: 524,288 a layer, 1,152 a token, blocks of 128 for MLA: 128 * ceil(3.56) = 512, page 589,824
    ("BailingMoeV2_5", 1, "vllm"): (4_608, 4 * 4 * 589_824),
}


@pytest.mark.parametrize(("name", "tp", "engine"), EXPECTED)
def test_bytes(name: str, tp: int, engine: str, tmp_path: Path) -> None:
    fp = footprint(write_config(tmp_path, CONFIGS[name]), engine, tp)
    assert (fp.kv_bytes, fp.state_bytes) == EXPECTED[name, tp, engine]
