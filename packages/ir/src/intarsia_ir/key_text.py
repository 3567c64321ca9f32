"""Keys of dictionaries as text, for what names the entry under one. Nothing here imports torch."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["key_text"]

_CONSTANTS = (int, str, bytes, float, complex, bool, type(None), type(Ellipsis))
_OF_TORCH = ("dtype", "device", "layout", "memory_format")


def key_text(key: Any) -> str:
    """Return a constant as Python writes it, an enumeration by its name, and of another key what kind of thing it is.

    The `repr` of other keys is code of the user's, or shows what a tensor holds, which names nothing and takes long.

    Example:
        >>> key_text(("w", 0)), key_text(object())
        ("('w', 0)", '<object>')
    """
    cls = type(key)
    if cls in _CONSTANTS or (cls.__module__ == "torch" and cls.__name__ in _OF_TORCH):
        return repr(key)
    if cls is tuple:
        return f"({', '.join(map(key_text, key))}{',' if len(key) == 1 else ''})"
    if isinstance(key, enum.Enum):
        return f"{cls.__name__}.{key._name_}"
    if isinstance(key, type):
        return f"<class {key.__name__}>"
    return f"<{cls.__name__}>"
