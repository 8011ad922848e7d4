"""For the name."""


class FullDuplexOrchestrator:
    """Orchestrator of spoken simulations."""
