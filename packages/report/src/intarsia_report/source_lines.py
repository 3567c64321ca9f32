"""The user's lines that programs and kernels come from, with a few around them."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from intarsia_report.programs import Places

__all__ = ["File", "Line", "files_of"]

AROUND = 2  # lines before and after one that something comes from
Kernels = Mapping[tuple[str, int], list[tuple[str, str, int]]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Args:
        number: 1-based.
        text: As it is in the file; "" where that can't be read.
        id: For links, "" for a line that nothing comes from.
        kernels: Id, label and colour of each kernel that has something of it.
        gap: Lines before it are left out.
    """

    number: int
    text: str
    id: str
    kernels: tuple[tuple[str, str, int], ...]
    gap: bool


@dataclass(frozen=True, slots=True)
class File:
    """A file, and those of its lines that are shown.

    Args:
        name: Its path.
        library: It is of a library, not of the user's program.
        lines: In order.
    """

    name: str
    library: bool
    lines: tuple[Line, ...]


def files_of(places: Places, kernels: Kernels, line_of: Callable[[str, int], str]) -> tuple[File, ...]:
    """Return the files with lines that something links to, the user's own first.

    Args:
        places: What is linked to.
        kernels: Line -> the kernels of it.
        line_of: `(file, line)` -> its text, "" where there is none.
    """
    found = []
    for name, wanted in places.lines.items():
        numbers = sorted({n for line in wanted for n in range(max(line - AROUND, 1), line + AROUND + 1)})
        texts = {n: line_of(name, n).rstrip() for n in numbers}
        lines, last = list[Line](), 0
        for n in numbers:
            if n not in wanted and not texts[n]:
                continue
            anchor = places.anchor(name, n) if n in wanted else ""
            lines.append(Line(n, texts[n], anchor, tuple(kernels.get((name, n), ())), last not in (0, n - 1)))
            last = n
        found.append(File(name, name.startswith(_LIBRARIES), tuple(lines)))
    return tuple(sorted(found, key=lambda file: file.library))


_LIBRARIES = tuple(
    os.path.join(path, "")
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")),
        os.path.dirname(torch.__file__),
    }
)
