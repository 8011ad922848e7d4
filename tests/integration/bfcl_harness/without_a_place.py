"""coresched_bfcl with a bfcl-eval that lacks a function: `python without_a_place.py COMMAND...`."""

import sys

from bfcl_eval import _llm_response_generation
from coresched_bfcl.command import main

del _llm_response_generation.multi_threaded_inference
sys.argv[0] = "coresched_bfcl"
sys.exit(main())
