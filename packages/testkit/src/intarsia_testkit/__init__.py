"""Package under construction."""

__version__ = "0.1.0"
