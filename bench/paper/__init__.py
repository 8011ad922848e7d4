"""The published experiments of arXiv:2611.16661, for comparison with ours."""
