"""The kernels dialect: nests grouped into kernels, extern calls, and where buffers live."""

from intarsia_loops.kernels.interpret import interpret
from intarsia_loops.kernels.text import kernel_text, parse_ir, print_ir
from intarsia_loops.kernels.traffic import (
    KernelSummary,
    bytes_at_capture,
    describe_kernels,
    summarise,
    summarise_kernel,
)
from intarsia_loops.kernels.verify import verify

__all__ = [
    "KernelSummary",
    "bytes_at_capture",
    "describe_kernels",
    "interpret",
    "kernel_text",
    "parse_ir",
    "print_ir",
    "summarise",
    "summarise_kernel",
    "verify",
]
