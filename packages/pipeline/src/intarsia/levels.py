"""The levels of a program, in flow order: what the stages of a pipeline take and give.

Captured -> Recorded -> Functional -> Partition[Half] -> Partition[Loops] -> Partition[Kernels]
    -> Partition[Launched] -> Partition[Emitted] -> Partition[Linked]
"""

from intarsia_ir.values import Captured, Functional, Half, Partition, Recorded
from intarsia_loops import Emitted, Kernels, Launched, Loops
from intarsia_loops.dialects import dialect_of, verify
from intarsia_runtime import Linked

__all__ = [
    "Captured",
    "Emitted",
    "Functional",
    "Half",
    "Kernels",
    "Launched",
    "Linked",
    "Loops",
    "Partition",
    "Recorded",
    "dialect_of",
    "verify",
]
