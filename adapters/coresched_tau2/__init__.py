"""tau2-bench under the gate; docs/tau2.md."""
