"""Texts of programs as lines of a page: what is new in each, and links from its names to the user's lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from markupsafe import Markup, escape

from intarsia_ir.records import Origin

__all__ = ["Lines", "Places", "compared"]

# a name where it is made: at the start of a line, or among the inputs of a graph
_MADE = re.compile(r"^ *(?:local )?%(\w+): ")
_INPUT = re.compile(r"[(,] ?%(\w+): ")
_COMMENT = "  # "
_ORIGIN = re.compile(r"(.*?):(\d+) in ('[^']*'|.*?)(?: \(((?!after the break)[^()]*)\))?")
_LONGEST_COMPARED = 20_000  # lines; comparing takes time that grows with their square where much is different


class Places:
    """Numbers for the user's lines, as they come up: a line that something links to is shown."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._origins: dict[Origin, int] = {}
        self.lines: dict[str, set[int]] = {}

    def number(self, file: str) -> int:
        """Return the number of a file."""
        return self._files.setdefault(file, len(self._files))

    def anchor(self, file: str, line: int) -> str:
        """Return the id of a line, which is to be shown then."""
        self.lines.setdefault(file, set()).add(line)
        return f"u{self.number(file)}-{line}"

    def link(self, origin: Origin) -> Markup:
        """Return a link to a line, under a short name; nothing for what has no line."""
        if not origin.line:
            return Markup("")
        short = f"{PurePath(origin.file).name}:{origin.line}"
        return Markup('<a href="#{}">{}</a>').format(self.anchor(origin.file, origin.line), short)

    def of_origin(self, origin: Origin) -> int:
        """Return a number for an operation on a line: what has it in common was made of it."""
        return self._origins.setdefault(origin, len(self._origins))


@dataclass(frozen=True, slots=True)
class Lines:
    """A program as lines of a page.

    Args:
        html: The lines; where the program before was of the same level, new ones and gone ones are marked.
        n: How many there are.
        change: What is new and gone, in short; "" where that isn't known.
        n_left_out: Lines beyond the limit.
    """

    html: Markup
    n: int
    change: str = ""
    n_left_out: int = 0


def compared(before: str, after: str, prefix: str, places: Places, colours: Mapping[str, int], limit: int) -> Lines:
    """Return the lines of a program.

    Args:
        before: The text of what it was made from; of another level, or "", nothing is compared.
        after: Its text.
        prefix: Unique in the page; ids of its lines start with it.
        places: Told of the lines that are linked to.
        colours: Name -> number of the kernel that makes it.
        limit: Characters of the text that are shown, in whole lines.
    """
    old, new = (text.splitlines() for text in (before, after))
    shown, n_left_out = _within(new, limit)
    marked = old[:1] == new[:1] and not n_left_out and max(len(old), len(new)) <= _LONGEST_COMPARED
    made, n_new, n_gone = list[Markup](), 0, 0
    for mark, number, line in _merged(old, shown) if marked else _unmarked(shown):
        n_new, n_gone = n_new + (mark == "ins"), n_gone + (mark == "del")
        name = f"{prefix}-{number}" if mark != "del" else ""
        made.append(_line(line, mark, name, places, colours))
    change = f"+{n_new} \u2212{n_gone}" if marked else ""
    return Lines(Markup("").join(made), len(new), change, n_left_out)


def _within(lines: Sequence[str], limit: int) -> tuple[Sequence[str], int]:
    total = 0
    for number, line in enumerate(lines):
        total += len(line) + 1
        if total > limit:
            return lines[:number], len(lines) - number
    return lines, 0


def _unmarked(lines: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    return (("", number, line) for number, line in enumerate(lines))


def _merged(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """The lines of `new`, marked, with those that are gone in between."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, low, high, start, stop in matcher.get_opcodes():
        if kind != "equal":
            yield from (("del", 0, line) for line in old[low:high])
        mark = "" if kind == "equal" else "ins"
        yield from ((mark, number, new[number]) for number in range(start, stop))


def _line(line: str, mark: str, name: str, places: Places, colours: Mapping[str, int]) -> Markup:
    """One line: a name that is made gets an id, what it comes from links, and its kernel's colour."""
    made = _MADE.match(line)
    names = [made[1]] if made else _INPUT.findall(line) if line.startswith("graph(") else []
    code, comment, origins = _split(line)
    numbers = " ".join(str(places.of_origin(o)) for o in origins)
    html = escape(code) if not origins else escape(code + comment) + Markup("; ").join(map(_writer(places), origins))
    if mark:
        html = Markup("<{0}>{1}</{0}>").format(Markup(mark), html)
    if not names or mark == "del":
        return html + Markup("\n")
    kernel = colours.get(made[1]) if made else None
    style = Markup(' class="k{}"').format(kernel % 8) if kernel is not None else Markup("")
    head = Markup('<span id="{}" data-n="{}" data-o="{}"{}>').format(name, " ".join(names), numbers, style)
    return head + html + Markup("</span>\n")


def _writer(places: Places) -> Callable[[Origin], Markup]:
    """Return what writes an origin: a link, and the function and the operation beside it."""

    def write(origin: Origin) -> Markup:
        op = f" ({origin.op})" if origin.op else ""
        return places.link(origin) + escape(f" in {origin.function}{op}")

    return write


def _split(line: str) -> tuple[str, str, list[Origin]]:
    """Cut a line into the program, the mark of a comment, and where it comes from; all of it is program otherwise."""
    code, comment, rest = line.rpartition(_COMMENT)
    matches = [_ORIGIN.fullmatch(part) for part in rest.split("; ")] if comment else []
    if not matches or not all(matches):
        return line, "", []
    return code, comment, [Origin(m[1], int(m[2]), m[3].strip("'"), m[4] or "") for m in matches if m is not None]
