"""Names that users know in place of those that a frame cut in two gets: for every text that they read."""

from __future__ import annotations

import re

__all__ = ["in_user_names"]

# intarsia_bytecode names them: the rest of a function behind a break, and what was on the stack there
_RESUMED = re.compile(r"(?P<function>[\w.<>]*?)(?:\.?__resume_at_(?P<line>\d+)_\d+)+")
_STACK = re.compile(r"\b__stack\d*_(?P<number>\d+)\b")


def in_user_names(text: str) -> str:
    """Return a text without names that no line of the user's has.

    Example:
        >>> in_user_names("f.__resume_at_6_0.__resume_at_9_2 reads __stack0_2.shape")
        'f (after the break in line 9) reads <stack 2>.shape'
        >>> in_user_names("model.py:6 in f")
        'model.py:6 in f'
    """
    if "__resume_at_" not in text and "__stack" not in text:
        return text
    text = _RESUMED.sub(lambda m: f"{m['function'] or 'the rest'} (after the break in line {m['line']})", text)
    return _STACK.sub(lambda m: f"<stack {m['number']}>", text)
