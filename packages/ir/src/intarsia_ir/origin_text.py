"""The user's lines in a text: their numbers behind nodes, a comment above each group, and a footer that names files.

    graph(%x: f32[4, 8]) {
      # model.py:12 in forward
      %0: f32[4, 8] = aten.relu.default(%x)  #12 relu
      %1: f32[4, 8] = aten.mul.Tensor(%0, 0.5)  #12 mul
      # model.py:12 in forward; layers.py:7 in join
      %2: f32[4, 8] = aten.add.Tensor(%1, %x)  #12 mul; #2:7 add
      return (%2,)
    }
    origins under '/srv/project'
      1 src/model.py
        forward: 12
      2 blocks/layers.py
        join: 7

Behind `#` is a line of the first file, or of the one whose number stands before it; then the operations there that a
node stands for, `-` where one has no name among several. Where a second function has the same line, it is `#12.2`. The
comment above a group is for who reads: it isn't read back, so nodes can be moved, added and dropped. Files are named
once, after a folder that is named once; installed packages have one of their own. A node that stands alone, without a
footer, has its lines in whole, `# model.py:12 in forward (relu)`, as texts had before. Both are read.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia_ir._tokens import fail
from intarsia_ir.records import Origin

__all__ = [
    "NO_PLACES",
    "OriginTable",
    "OriginWriter",
    "Place",
    "Places",
    "lines_in_full",
    "origins_of_comment",
    "split_origins",
]

#: File, line and function.
Place = tuple[str, int, str]
#: What the numbers in a text stand for: `"12"`, `"2:7"`, `"12.2"`.
Places = Mapping[str, Place]

NO_PLACES: Places = MappingProxyType({})

_PART = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^ ;#'"\\()\n\r\t:,]+)"""
_LONE = _PART.replace(",]", "]")  # where there is no list, a comma needs no quotes
_IN_FULL = re.compile(rf"({_LONE}):(\d+) in ({_LONE})(?: \(({_LONE})\))?(?:; |$)")
# as loops were written before: nothing is quoted
_UNQUOTED = re.compile(r"(.+?):(\d+) in (.+?)(?: \(([^()]*)\))?")
_REFERENCE = re.compile(rf"#([\d:.]+)((?: {_PART}(?:, {_PART})*)?)(?:; |$)")
_OPERATION = re.compile(_PART)
_FOOTER = re.compile(rf"(?:^origins(?: under {_PART})?\n(?:  [^\n]*\n)*)+\Z", re.MULTILINE)
_BLOCK = re.compile(rf"origins(?: under ({_PART}))?")
_FILE = re.compile(rf"  (\d+) ({_PART})")
_FUNCTION = re.compile(rf"    ({_PART}): (\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*)")
_GROUP = re.compile(r" *# [^ ]+:\d+ in .*")
_NUMBERS = re.compile(r"(.*)  (#([\d:.]+)(?:[ ;].*)?)")
_LEVEL = re.compile(r"^(?=// level: )", re.MULTILINE)
_INSTALLED = re.compile(r"(.*/(?:site|dist)-packages)/")
_MOST_SHOWN = 3  # lines in the comment above a group


class OriginWriter:
    """Writes the user's lines in whole behind each node: for a node that stands alone."""

    def comment(self, where: Sequence[Origin]) -> str:
        """Return the comment that ends a line."""
        return "  # " + "; ".join(map(_in_full, where)) if where else ""

    def group(self, where: Sequence[Origin]) -> Sequence[str]:
        """Return what goes above a node, without indentation: none, or the comment of a group that begins with it."""
        return ()


class OriginTable(OriginWriter):
    """Writes numbers of lines; `lines` are the footer that says what they stand for, once all is written."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._numbers: dict[Place, str] = {}
        self._n_functions: dict[str, int] = {}  # of a line
        self._group: tuple[Place, ...] = ()

    def comment(self, where: Sequence[Origin]) -> str:
        """Return the comment that ends a line: numbers of lines, each with the operations there."""
        if not where:
            return ""
        if len(where) == 1:  # of a graph as it was captured all are, and that is printed when it is compiled
            (origin,) = where
            place = (origin.file, origin.line, origin.function)
            number = self._numbers.get(place) or self._number(place)
            return f"  #{number} {_operation(origin.op)}" if origin.op else f"  #{number}"
        parts, last = list[str](), None
        for origin in where:
            place = (origin.file, origin.line, origin.function)
            if place == last:
                parts[-1] += f"{',' if ' ' in parts[-1] else ' -,'} {_operation(origin.op)}"
                continue
            number = self._numbers.get(place) or self._number(place)
            parts.append(f"#{number} {_operation(origin.op)}" if origin.op else f"#{number}")
            last = place
        return "  " + "; ".join(parts)

    def _number(self, place: Place) -> str:
        file, line, _ = place
        n_file = self._files.setdefault(file, len(self._files) + 1)
        number = str(line) if n_file == 1 else f"{n_file}:{line}"
        n_before = self._n_functions.get(number, 0)
        self._n_functions[number] = n_before + 1
        self._numbers[place] = number if not n_before else f"{number}.{n_before + 1}"
        return self._numbers[place]

    def group(self, where: Sequence[Origin]) -> Sequence[str]:
        """Return the comment of a group that begins with a node of these lines; nothing where one goes on."""
        if len(where) == 1:
            places: tuple[Place, ...] = ((where[0].file, where[0].line, where[0].function),)
        else:
            places = tuple(dict.fromkeys([(origin.file, origin.line, origin.function) for origin in where]))
        if places == self._group:
            return ()
        self._group = places
        if not places:
            return ()
        shown = [
            f"{_quoted(os.path.basename(file))}:{line} in {name if name.isprintable() else repr(name)}"
            for file, line, name in places[:_MOST_SHOWN]
        ]
        n_more = len(places) - len(shown)
        return ("# " + "; ".join(shown) + (f"; and {n_more} more" if n_more else ""),)

    def lines(self) -> list[str]:
        """Return the lines of the footer, none where there is no number."""
        functions: dict[str, dict[str, list[str]]] = {file: {} for file in self._files}
        for (file, _, function), number in sorted(self._numbers.items(), key=lambda item: item[0][1]):
            functions[file].setdefault(function, []).append(number.rpartition(":")[2])
        bases = _bases(self._files)
        lines = list[str]()
        for base in dict.fromkeys(bases.values()):
            lines.append(f"origins under {base!r}" if base else "origins")
            for file in (file for file in bases if bases[file] == base):
                lines.append(f"  {self._files[file]} {_quoted(file[len(base) :].removeprefix('/') if base else file)}")
                lines += [f"    {_quoted(name)}: {', '.join(numbers)}" for name, numbers in functions[file].items()]
        return lines


def split_origins(text: str, line: int = 0) -> tuple[str, Places]:
    """Return a text without its footer, and what the numbers in it stand for.

    Args:
        text: Of a graph, or of a value with one.
        line: Lines before it in what the user wrote.

    Raises:
        InvalidArgumentError: `ir.parse`: the footer isn't of its form.
    """
    footer = _FOOTER.search(text)
    if footer is None:
        return text, NO_PLACES
    places: dict[str, Place] = {}
    base, file, prefix = "", None, ""
    start = line + text.count("\n", 0, footer.start()) + 1
    for at, entry in enumerate(footer[0].splitlines(), start):
        if block := _BLOCK.fullmatch(entry):
            base, file = (_unquoted(block[1]).rstrip("/") + "/" if block[1] else ""), None
        elif named := _FILE.fullmatch(entry):
            file, prefix = base + _unquoted(named[2]), "" if named[1] == "1" else f"{named[1]}:"
        elif (function := _FUNCTION.fullmatch(entry)) and file is not None:
            for number in function[2].split(", "):
                if prefix + number in places:
                    fail(f"#{prefix}{number} is a line of two places", at)
                places[prefix + number] = (file, int(number.partition(".")[0]), _unquoted(function[1]))
        else:
            fail("below `origins` are files, `<number> <path>`, and below each `<function>: <line>, ...`", at)
    return text[: footer.start()], places


def origins_of_comment(comment: str, places: Places, line: int) -> tuple[Origin, ...]:
    """Return the user's lines that the comment behind a node names.

    Args:
        comment: From its `#` on; one that names no line gives nothing.
        places: What numbers in it stand for.
        line: Where it is, for errors.

    Raises:
        InvalidArgumentError: `ir.parse`: a number that no footer has.
    """
    if not re.match(r"#\d", comment):
        return _lines_in_full(comment.lstrip("#/").strip())
    origins, position = list[Origin](), 0
    while position < len(comment):
        reference = _REFERENCE.match(comment, position)
        if reference is None:
            fail(f"expected `#<line> <operation>, ...`, found {comment[position:]!r}", line)
        place = places.get(reference[1])
        if place is None:
            fail(f"#{reference[1]} is no line of a file below `origins`, at the end of the text", line)
        operations = _OPERATION.findall(reference[2]) or ["-"]
        origins += [Origin(*place, "" if op == "-" else _unquoted(op)) for op in operations]
        position = reference.end()
    return tuple(origins)


def lines_in_full(text: str) -> list[str]:
    """Return the lines of a text with the user's lines in whole, and without footers: to compare and quote them.

    Args:
        text: Of a graph, a value or a partition.

    Raises:
        InvalidArgumentError: `ir.parse`: a footer isn't of its form, or lacks a number.
    """
    lines = list[str]()
    for part in _LEVEL.split(text):
        body, places = split_origins(part)
        for at, line in enumerate(body.splitlines(), 1):
            numbers = _NUMBERS.fullmatch(line)
            if numbers is not None and numbers[3] in places:
                lines.append(numbers[1] + OriginWriter().comment(origins_of_comment(numbers[2], places, at)))
            elif not _GROUP.fullmatch(line):
                lines.append(line)
    return lines


def _lines_in_full(text: str) -> tuple[Origin, ...]:
    parts = _IN_FULL.findall(text)
    if not parts:
        matches = [_UNQUOTED.fullmatch(part) for part in text.split("; ")]
        parts = [match.groups("") for match in matches if match is not None]
    return tuple([Origin(_unquoted(file), int(at), _unquoted(name), _unquoted(op)) for file, at, name, op in parts])


def _bases(files: Mapping[str, int]) -> dict[str, str]:
    """Return the folder that each file is named after: of installed packages theirs, of others the one they share."""
    rest = [file for file in files if os.path.isabs(file) and not _INSTALLED.match(file)]
    shared = os.path.commonpath([os.path.dirname(file) for file in rest]) if rest else ""
    bases = dict[str, str]()
    for file in files:
        installed = _INSTALLED.match(file)
        base = installed[1] if installed else shared
        # a path that isn't written in its shortest form stays whole
        rejoined = f"{base.rstrip('/')}/{file[len(base) :].removeprefix('/')}"
        bases[file] = base if base and rejoined == file else ""
    return bases


def _in_full(origin: Origin) -> str:
    file, function, op = map(_quoted, (origin.file, origin.function, origin.op))
    return f"{file}:{origin.line} in {function}" + (f" ({op})" if origin.op else "")


def _operation(op: str) -> str:
    if op.isidentifier():  # almost all, and quickly told
        return op
    return "-" if not op else repr(op) if op == "-" else _quoted(op)


def _quoted(text: str) -> str:
    """Quote a part of an origin when it holds what the comment's own syntax uses."""
    plain = text.isprintable() and not any(c in text for c in " ;#'\"\\():,")
    return text if text and plain else repr(text)


def _unquoted(text: str) -> str:
    return str(ast.literal_eval(text)) if text[:1] in ("'", '"') else text
