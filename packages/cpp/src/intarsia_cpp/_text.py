"""Pieces of C++ text: loops, blocks, indentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["block", "indented", "loop"]


def block(head: str, lines: Iterable[str]) -> list[str]:
    """Return `head { lines }`."""
    return [f"{head} {{".lstrip(), *lines, "}"]


def loop(name: str, start: str, stop: str, step: int | str = 1) -> str:
    """Return the head of a counting loop."""
    advance = f"{name}++" if step == 1 else f"{name} += {step}"
    return f"for (i64 {name} = {start}; {name} < {stop}; {advance})"


def indented(lines: Sequence[str]) -> str:
    """Return lines as text, indented by their braces; preprocessor lines stay at the margin."""
    out, depth = [], 0
    for line in lines:
        closes = line.startswith("}")
        depth -= closes
        out.append(line if line.startswith("#") else "  " * depth + line)
        depth += line.count("{") - line.count("}") + closes
    return "\n".join(out) + "\n"
