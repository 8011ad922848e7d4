"""A service that may move: its place is asked for again whenever it does not answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which loads gRPC
    from coresched.client.remote.options import Connection


class Lookup(ABC):
    """Given to `coresched.connect` in place of an address. `str` is what messages call the service.

    For whoever starts a service anew in another place, with the same journal: a cluster's scheduler, for one.
    """

    @abstractmethod
    def find(self, within_s: float) -> Connection:
        """Where the service is now. It may block, for about `within_s` seconds at most; from any thread.

        Raises ConnectionError, with a sentence why, if that is not known yet: it is asked again until the
        client's `grace_s` is over.
        """
