from typing import final

@final
class Sample:
    index: int
    def __init__(self) -> None: ...
    @property
    def name(self) -> str: ...
