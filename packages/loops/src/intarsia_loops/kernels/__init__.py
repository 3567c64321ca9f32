"""The kernels dialect: nests grouped into kernels, extern calls, and where buffers live."""

from intarsia_loops.kernels.interpret import interpret

__all__ = ["interpret"]
