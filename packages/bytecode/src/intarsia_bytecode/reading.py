"""Code as instructions, labels and try regions: what the `bytecode` library reads, with every region in it.

The library writes that a region begins at an instruction itself, where CPython's compiler says at its first prefix
(`EXTENDED_ARG`), and it reads back the second only: a region that begins with a long argument was gone after two turns.
"""

from __future__ import annotations

import dis
from types import CodeType

from bytecode import Bytecode, ConcreteBytecode

__all__ = ["read"]

_PREFIX = dis.opmap["EXTENDED_ARG"]


def read(code: CodeType) -> Bytecode:
    """Return the instructions of code, with the stack depths of its handlers.

    Example:
        >>> [item.name for item in read((lambda: None).__code__)][-2:]
        ['LOAD_CONST', 'RETURN_VALUE']
    """
    concrete = ConcreteBytecode.from_code(code)
    begins = _begins(code)
    for region in concrete.exception_table:
        region.start_offset = begins.get(region.start_offset, region.start_offset)
    return concrete.to_bytecode(conserve_exception_block_stackdepth=True)


def _begins(code: CodeType) -> dict[int, int]:
    """Map the place of each instruction that has prefixes to that of the first, in code units."""
    found = {}
    first = -1
    for place, number in enumerate(code.co_code[::2]):
        if number == _PREFIX:
            first = place if first < 0 else first
        elif first >= 0:
            found[place], first = first, -1
    return found
