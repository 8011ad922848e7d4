from collections.abc import Mapping

from coresched.core.ring import LoadBoundedRouter

def route_given(router: LoadBoundedRouter, label: str, loads: Mapping[str, int]) -> tuple[str, str]: ...
