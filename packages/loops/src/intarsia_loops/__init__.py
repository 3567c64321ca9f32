"""The loops and kernels dialects, and the lowerings from ATen to loops."""

__version__ = "0.1.0"
