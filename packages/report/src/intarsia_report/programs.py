"""Texts of programs as lines of a page: what is new in each, and links from its names to the user's lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from markupsafe import Markup, escape

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.origin_text import Places as Numbers
from intarsia_ir.origin_text import origins_of_comment, split_origins
from intarsia_ir.records import Origin

__all__ = ["Lines", "Places", "compared"]

# a name where it is made: at the start of a line, or among the inputs of a graph
_MADE = re.compile(r"^ *(?:local )?%(\w+): ")
_INPUT = re.compile(r"[(,] ?%(\w+): ")
_NAME = re.compile(r"%(\w+)")
_COMMENT = re.compile(r"(.*  )(#\d.*)")
_REFERENCE = re.compile(r"((?:^|; )#[\d:.]+)")
_GROUP = re.compile(r" *# ([^ ;]+:\d+ in .*)")
_PLACE = re.compile(r"([^ ;]+:\d+)(?= in )")
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

    def link(self, origin: Origin, name: str = "") -> Markup:
        """Return a link to a line, under a short name where none is given; only the name where there is no line."""
        if not origin.line:
            return escape(name)
        short = name or f"{PurePath(origin.file).name}:{origin.line}"
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
    used = _used(shown)
    numbers = {mark: _Numbers(split_origins(text)[1]) for mark, text in (("del", before), ("ins", after))}
    marked = old[:1] == new[:1] and not n_left_out and max(len(old), len(new)) <= _LONGEST_COMPARED
    made, n_new, n_gone = list[Markup](), 0, 0
    for mark, number, line in _merged(old, shown) if marked else _unmarked(shown):
        n_new, n_gone = n_new + (mark == "ins"), n_gone + (mark == "del")
        name = f"{prefix}-{number}" if mark != "del" else ""
        line_html, origins = numbers[mark or "ins"].written(line, places)
        takes = used.get(number) if mark != "del" else None
        made.append(_line(line, line_html, origins, mark, name, takes, places, colours))
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


def _used(lines: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Number of each line that makes names, or returns -> numbers of the lines that make what it takes.

    What a body below a line takes belongs to that line. Only what is in a graph counts, and not the source beside it.
    """
    made, used, at = dict[str, int](), dict[int, dict[int, None]](), -1
    for number, line in enumerate(lines):
        if line.startswith("graph("):
            made.clear()  # another program: its names are its own
            at = number
        if at < 0 or line.startswith("}"):
            at = -1
            continue
        names = _names(line)
        if names or line.startswith("  return "):
            at = number
            used[at] = {}
        comment = _COMMENT.fullmatch(line)
        for name in _NAME.findall(comment[1] if comment else line):
            if name in made and name not in names:
                used[at][made[name]] = None
        made.update((name, number) for name in names)
    return {number: tuple(makers) for number, makers in used.items()}


def _names(line: str) -> list[str]:
    """The names that a line makes."""
    made = _MADE.match(line)
    return [made[1]] if made else _INPUT.findall(line) if line.startswith("graph(") else []


def _line(
    line: str,
    html: Markup,
    origins: Sequence[Origin],
    mark: str,
    name: str,
    used: Sequence[int] | None,
    places: Places,
    colours: Mapping[str, int],
) -> Markup:
    """One line: a name that is made gets an id, what it takes and comes from links, and its kernel's colour."""
    names = _names(line)
    numbers = " ".join(str(places.of_origin(o)) for o in origins)
    if mark:
        html = Markup("<{0}>{1}</{0}>").format(Markup(mark), html)
    if mark == "del" or (not names and used is None):
        return html + Markup("\n")
    kernel = colours.get(names[0]) if _MADE.match(line) else None
    style = Markup(' class="k{}" data-k="{}"').format(kernel % 8, kernel) if kernel is not None else Markup("")
    takes = Markup(' data-u="{}"').format(" ".join(map(str, used))) if used is not None else Markup("")
    head = Markup('<span id="{}" data-n="{}" data-o="{}"{}{}>').format(name, " ".join(names), numbers, takes, style)
    return head + html + Markup("</span>\n")


class _Numbers:
    """What the numbers of lines in one text stand for."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._named = {
            f"{PurePath(file).name}:{line}": Origin(file, line, function) for file, line, function in numbers.values()
        }

    def written(self, line: str, places: Places) -> tuple[Markup, Sequence[Origin]]:
        """Return a line with links to the user's lines that it names, and where a node in it comes from."""
        if group := _GROUP.fullmatch(line):
            parts = _PLACE.split(group[1])
            linked = [places.link(self._named[p], p) if p in self._named else escape(p) for p in parts]
            return escape(line[: group.start(1)]) + Markup("").join(linked), ()
        comment = _COMMENT.fullmatch(line)
        if comment is None:
            return escape(line), ()
        try:
            origins = origins_of_comment(comment[2], self._numbers, 0)
        except InvalidArgumentError:  # a line of a source, or a string
            return escape(line), ()
        parts = [self._reference(part, places) for part in _REFERENCE.split(comment[2])]
        return escape(comment[1]) + Markup("").join(parts), origins

    def _reference(self, part: str, places: Places) -> Markup:
        before, mark, number = part.rpartition("#")
        if not mark or number not in self._numbers:
            return escape(part)
        return escape(before) + places.link(Origin(*self._numbers[number]), f"#{number}")
