"""The durable log of what happened: one SQLite file, from which a restarted service goes on."""

from coresched.service.journal.writer import Journal

__all__ = ["Journal"]
