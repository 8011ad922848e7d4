"""BFCL's own command line with the gate in front: `python -m coresched_bfcl generate ...`; docs/bfcl.md."""
