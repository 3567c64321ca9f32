"""What the C extension offers; native.py is its only user."""

from collections.abc import Mapping
from typing import Any

OPERATIONS: dict[str, int]
SIZE_OPERATIONS: dict[str, int]
READ_INT: int

class Check:
    n_operations: int
    def __new__(cls, n_values: int, n_registers: int, operations: list[tuple[Any, ...]]) -> Check: ...
    def __call__(self, *values: Any) -> bool: ...

def bind(addresses: Mapping[str, int], /) -> None: ...
def tensor_facts(tensor: Any, /) -> tuple[int, int, int, bool]: ...
def state(device_type: int, /) -> tuple[bool, bool, int, int, int, bool, int]: ...
