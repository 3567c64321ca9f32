"""What runs instead of a frame, as Python where that can be written, under names that users know."""

from __future__ import annotations

import dis
import re
from collections.abc import Sequence
from types import CodeType
from typing import Any

from intarsia_bytecode import Hole, source_of
from intarsia_dispatch import EventKind, FrameEvent
from intarsia_ir.user_names import in_user_names

__all__ = ["frame_source", "frame_sources"]

_WORD = re.compile(r"\b[^\W\d]\w*\b")
# how what is made for a capture is named, and what it is called here
_NAMES = (
    (re.compile(r"_*resume_at_(\d+)_(\d+)(?:_\d+)?"), r"rest_after_line_\1_\2"),
    (re.compile(r"__compiled_fn_(\d+)_\d+"), r"compiled_graph_\1"),
    (re.compile(r"__compiled_fn_(\d+)"), r"graph_\1"),
    (re.compile(r"__tmp_(\d+)"), r"value_\1"),
    (re.compile(r"__stack(\d*)_(\d+)"), r"stack\1_\2"),
)


def frame_sources(frames: Sequence[FrameEvent]) -> str:
    """Return what runs instead of each frame that was compiled, in order; "" where none was."""
    replaced = [event for event in frames if event.kind in (EventKind.COMPILED, EventKind.RECOMPILED)]
    return "\n\n".join(
        f"# {in_user_names(event.name)} ({event.origin.file}:{event.origin.line})\n{frame_source(event)}"
        for event in replaced
        if event.capture is not None
    )


def frame_source(event: FrameEvent) -> str:
    """Return what runs instead of a frame: Python, or, where there is none, its bytecode; "" where nothing does."""
    if event.capture is None:
        return ""
    code: CodeType = event.capture.code.code
    source = source_of(code)
    if source is None:
        return in_user_names(f"# there is no Python for it yet:\n{dis.Bytecode(code).dis()}")
    known = [f"# {name}: {said}" for name, value in source.names.items() if (said := _said(value))]
    return _in_names_of_users("\n".join([*known, source.text]), code) + "\n"


def _said(value: Any) -> str:
    """What a name without a literal is; its `repr` would be code of the user's."""
    if isinstance(value, CodeType):
        return in_user_names(value.co_qualname)
    if isinstance(value, Hole):
        return "the graph, compiled"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return f"{getattr(value, '__qualname__', '')} of class {type(value).__name__}".strip()


def _in_names_of_users(text: str, code: CodeType) -> str:
    taken = {*_WORD.findall(text), *code.co_varnames, *code.co_names}

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        for pattern, name in _NAMES:
            if found := pattern.fullmatch(word):
                better = found.expand(name)
                return better if better not in taken else word
        return word

    return _WORD.sub(renamed, text)
