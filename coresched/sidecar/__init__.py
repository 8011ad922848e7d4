"""An HTTP proxy of an LLM and a tool endpoint that schedules a harness which knows nothing of it."""
