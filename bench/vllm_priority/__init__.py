"""The cost of one scheduling pass inside vLLM: measured in its environment, shown in ours."""
