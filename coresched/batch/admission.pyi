from typing import final

@final
class AdmissionOrder:
    def __init__(self, policy: str) -> None: ...
