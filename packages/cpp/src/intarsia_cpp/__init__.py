"""Kernels -> vectorised C++ with OpenMP."""

from intarsia_cpp.unit import emit, emit_unit

__all__ = ["emit", "emit_unit"]
__version__ = "0.1.0"
