"""The kernels dialect: nests grouped into kernels, extern calls, and where buffers live."""

from intarsia_loops.kernels.interpret import interpret
from intarsia_loops.kernels.text import kernel_text, parse_ir, print_ir
from intarsia_loops.kernels.traffic import KernelSummary, summarise_kernel, summarise_launches
from intarsia_loops.kernels.verify import verify

__all__ = [
    "KernelSummary",
    "interpret",
    "kernel_text",
    "parse_ir",
    "print_ir",
    "summarise_kernel",
    "summarise_launches",
    "verify",
]
