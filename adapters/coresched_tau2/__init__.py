"""tau2's own command line with the gate in front: `python -m coresched_tau2 run ...`; docs/tau2.md."""
