"""An OpenAI-compatible HTTP front of engine workers that routes each request by its trajectory label."""
