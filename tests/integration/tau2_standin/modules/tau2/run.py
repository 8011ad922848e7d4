"""The API's face."""

from tau2.runner.batch import run_domain

__all__ = ["run_domain"]
