"""What classes put before the dictionaries of their instances: data descriptors, and look-up written in Python."""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["is_data_descriptor", "is_plain_lookup"]


def is_data_descriptor(raw: Any) -> bool:
    """Tell whether a class attribute takes precedence over the instance dict."""
    kind = type(raw)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def is_plain_lookup(cls: Any) -> bool:
    """Tell whether no `__getattribute__` written in Python finds the attributes of a class's instances."""
    return not isinstance(cls.__getattribute__, FunctionType)
