"""What runs instead of a frame, as Python where that can be written, under names that users know."""

from __future__ import annotations

import dis
import re
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from intarsia_bytecode import Hole, source_of
from intarsia_dispatch import EventKind, FrameEvent

__all__ = ["frame_source", "frame_sources"]

_WORD = re.compile(r"\b[^\W\d]\w*\b")
# how what is made for a capture is named, and what it is called here
_NAMES = (
    (re.compile(r"(\w+_after_the_break_in_line_\d+(?:_from_line_\d+)?)_\d+"), r"\1"),
    (re.compile(r"__compiled_fn_(\d+)_\d+"), r"compiled_graph_\1"),
    (re.compile(r"__compiled_fn_(\d+)"), r"graph_\1"),
    (re.compile(r"__tmp_(\d+)"), r"value_\1"),
)


def frame_sources(frames: Sequence[FrameEvent]) -> str:
    """Return what runs instead of each frame that was compiled, in order; "" where none was."""
    replaced = [event for event in frames if event.kind in (EventKind.COMPILED, EventKind.RECOMPILED)]
    return "\n\n".join(
        f"# {event.name} ({event.origin.file}:{event.origin.line})\n{frame_source(event)}"
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
        return f"# there is no Python for it yet:\n{dis.Bytecode(code).dis()}"
    resumes = {name: getattr(rest, "code", rest) for name, rest in event.capture.code.resumes.items()}
    known = [f"# {name}: {said}" for name, value in source.names.items() if (said := _said(value, resumes))]
    return _in_names_of_users("\n".join([*known, source.text]), code, resumes) + "\n"


def _said(value: Any, resumes: Mapping[str, CodeType]) -> str:
    """What a name without a literal is; its `repr` would be code of the user's."""
    if isinstance(value, CodeType):
        return value.co_qualname
    if isinstance(value, Hole):
        return resumes[value.name].co_qualname if value.name in resumes else "the graph, compiled"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return f"{getattr(value, '__qualname__', '')} of class {type(value).__name__}".strip()


def _in_names_of_users(text: str, code: CodeType, resumes: Mapping[str, CodeType]) -> str:
    taken = {*_WORD.findall(text), *code.co_varnames, *code.co_names}
    given: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        if word not in given:
            better = _better(word, resumes)
            given[word] = better if better not in (taken - {word}) and better not in given.values() else word
        return given[word]

    return _WORD.sub(renamed, text)


def _better(word: str, resumes: Mapping[str, CodeType]) -> str:
    if word in resumes:
        return re.sub(r"\W+", "_", resumes[word].co_name).strip("_")
    found = [match.expand(name) for pattern, name in _NAMES if (match := pattern.fullmatch(word))]
    return found[0] if found else word
