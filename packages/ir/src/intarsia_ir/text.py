"""Text of the values of levels: all of a value, so that every stage runs from a file.

    // level: Functional 2
    symbol s0 in [2, inf] from 'x.size(0)' hint 6
    fact '((s0 % 2) == 0)'  #3
    input('x', source=source('self.x'), written=True)
    write(0, 0)
    output Fresh(1)
    reads {'s0': InputNumber(0)}
    // dialect: aten 2
    graph(%x: f32[s0, 4]) {
      # model.py:4 in f
      %mul_tensor: f32[s0, 4] = aten.mul.Tensor(%x, 2)  #4 mul
      ...
    }
    origins
      1 model.py
        f: 4
    origins under '/srv/project'
      1 src/model.py
        f: 3, 4

Nodes have their own names, which plans and the levels below use too. First come the size facts, with each symbol
declared once (a line `symbolic` where there could have been some, since composite ops come apart otherwise there); then
the signature, a line for each input, write and output; then the guards; then the graph in the text
of its dialect, and the user's lines of all of it (`intarsia_ir.origin_text`). A captured graph has lines
`example f32[2, 3]` for its inputs besides, with `of 0` behind the type where memory is shared with that input. A
partition is its graphs, one after the other, under a line for each pair of halves.

What has no text (functions of the user, attributes of modules, opaque objects) is a name in it: `constants_of` gives
the objects and `parse_value` takes them. Size symbols need an environment, which `intarsia_shapes.thawed` makes.
`LEVELS` has a row for each level of torch and ATen; a package with levels of its own adds rows, and passes all of them
(`intarsia_loops.level_text`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch._subclasses import FakeTensor, FakeTensorMode

from intarsia_ir import meta
from intarsia_ir._guard_text import guard_lines, guard_of
from intarsia_ir._literals import Opaque, value_type
from intarsia_ir._parse import Reader, parse_graph
from intarsia_ir._print import Dialect, graph_lines
from intarsia_ir._record_text import MAKERS, arguments_text, record_text
from intarsia_ir._tokens import Tokens, fail, tokenize
from intarsia_ir.aten.text import DIALECT as ATEN
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.fact_text import fact_lines, read_facts
from intarsia_ir.fakes import strided_over
from intarsia_ir.origin_text import OriginTable, OriginWriter, split_origins
from intarsia_ir.records import GuardRecord, Halves, InputSpec, Signature, SizeExpression, SizeFacts, Write
from intarsia_ir.torch.text import DIALECT as TORCH
from intarsia_ir.values import Captured, Functional, Half, Partition, Recorded

__all__ = [
    "LEVELS",
    "SCHEMA",
    "LevelText",
    "Opaque",
    "Reader",
    "Symbols",
    "Thaw",
    "Value",
    "constants_of",
    "guard_lines",
    "parse_value",
    "print_value",
    "read_guards",
    "read_signature",
    "record_reader",
    "record_text",
    "signature_lines",
    "text_and_constants",
]

SCHEMA = 2  # 1, where each node has the user's lines in whole, is read as well
Value = Captured | Recorded | Partition[Half]
Symbols = Callable[[str, str], Any]


class Thaw(Protocol):
    """Makes the mode that tensors of a graph belong to, and its size symbols."""

    def __call__(self, facts: SizeFacts, /, *, symbolic: bool) -> tuple[FakeTensorMode, Symbols]:
        """Return them; `symbolic`: sizes could have been symbols, even if there is no fact."""


_HEADER = re.compile(r"^// level: (\w+) (\d+)\n", re.MULTILINE)
_GRAPH = re.compile(r"^// dialect: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LevelText:
    """How the values of one level are written and read.

    Args:
        level: The class.
        signature: What a value's graph is to its caller.
        lines: `(value, opaque, origins)` -> the lines after `// level: ...` and before the footer, and what these refer
            to by name besides opaque objects; `origins` writes the user's lines.
        read: `(reader, text, line, constants, thaw)` -> the value; `reader` is at the head, which ends where a line
            `// dialect: ...` begins, and has the places of the footer; `text` is all from there on to the footer, and
            `line` the number of lines before it.
    """

    level: type
    signature: Callable[[Any], Signature]
    lines: Callable[[Any, Opaque, OriginWriter], tuple[list[str], dict[str, Any]]]
    read: Callable[[Reader, str, int, Mapping[str, Any], Thaw | None], Any]


def print_value(value: Any, *, levels: Mapping[str, LevelText] | None = None) -> str:
    """Return the text of a value, ending in a newline.

    Args:
        value: Of one of the levels, or a partition of such.
        levels: Name -> how a level is written; `LEVELS` when left out.

    Raises:
        UnsupportedError: Something in the graph has no text; halves of a partition that aren't those of its graphs.

    Example:
        >>> text = '''// level: Recorded 2
        ... input('x')
        ... output Fresh(0)
        ... // dialect: aten 2
        ... graph(%x: f32[2, 3]) {
        ...   # model.py:12 in forward
        ...   %y: f32[2, 3] = aten.add.Tensor(%x, 1, alpha=2)  #12 add
        ...   return (%y,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 12
        ... '''
        >>> print_value(parse_value(text)) == text
        True
    """
    return text_and_constants(value, levels=levels)[0]


def constants_of(value: Any, *, levels: Mapping[str, LevelText] | None = None) -> dict[str, Any]:
    """Return what `parse_value(print_value(value), constants=...)` needs."""
    return text_and_constants(value, levels=levels)[1]


def text_and_constants(value: Any, *, levels: Mapping[str, LevelText] | None = None) -> tuple[str, dict[str, Any]]:
    """Return what `print_value` and `constants_of` return."""
    opaque = Opaque()
    lines, named = _lines(value, opaque, levels or LEVELS)
    return "\n".join(lines) + "\n", {**named, **opaque.named}


def parse_value(
    text: str,
    *,
    constants: Mapping[str, Any] | None = None,
    thaw: Thaw | None = None,
    levels: Mapping[str, LevelText] | None = None,
) -> Any:
    """Return the value that `print_value` wrote as `text`.

    Args:
        text: One value.
        constants: What the text refers to by name.
        thaw: Makes the mode that the tensors of a graph belong to, and its size symbols, from size facts. A new
            FakeTensorMode when left out; then there may be no symbols.
        levels: Name -> how a level is read; `LEVELS` when left out.

    Raises:
        InvalidArgumentError: The text can't be read; the message has the line.
        UnsupportedError: The text is of another version.
    """
    constants, levels = constants or {}, levels or LEVELS
    if not text.startswith("// partition 1\n"):
        return _one(text, 0, constants, thaw, levels)
    starts = [match.start() for match in _HEADER.finditer(text)]
    if not starts:
        fail("a partition has graphs, each with a line `// level: <name> <version>`", 1)
    head = record_reader(text[: starts[0]], 0, constants)
    pairs = []
    while head.tokens.accept("halves"):
        pairs.append(head.arguments())
    head.tokens.expect_kind("end")
    ends = [*starts[1:], len(text)]
    graphs = [_one(text[a:b], text[:a].count("\n"), constants, thaw, levels) for a, b in zip(starts, ends, strict=True)]
    forward, *backwards = graphs
    if len(backwards) != len(pairs):
        fail(f"there are {len(pairs)} lines `halves(...)` for {len(backwards)} backward graphs", 1)
    outer = _signature(levels, forward)
    fits = zip(backwards, pairs, strict=True)
    halves = [Halves(outer, _signature(levels, b), *args, **more) for b, (args, more) in fits]
    return Partition(forward, tuple(backwards), tuple(halves))


# ---- writing ----------------------------------------------------------------------------------------------------


def _lines(value: Any, opaque: Opaque, levels: Mapping[str, LevelText]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of a value, and what they refer to by name besides opaque objects."""
    if not isinstance(value, Partition):
        origins = OriginTable()
        lines, named = _row(levels, value).lines(value, opaque, origins)
        return [f"// level: {type(value).__name__} {SCHEMA}", *lines, *origins.lines()], named
    lines, named = ["// partition 1"], dict[str, Any]()
    for backward, halves in zip(value.backwards, value.halves, strict=True):
        if (halves.forward, halves.backward) != (_signature(levels, value.forward), _signature(levels, backward)):
            raise UnsupportedError(
                "halves speak of other signatures than those of their graphs",
                code="ir.text",
                hints=("a stage that changes a signature changes it in `Partition.halves` as well",),
            )
        lines.append(f"halves({arguments_text(halves, opaque, without=('forward', 'backward'))})")
    for one in value.graphs:
        more, outside = _lines(one, opaque, levels)
        lines, named = [*lines, *more], {**named, **outside}
    return lines, named


def _row(levels: Mapping[str, LevelText], value: Any) -> LevelText:
    row = levels.get(type(value).__name__)
    if row is None or row.level is not type(value):
        raise UnsupportedError(f"a {type(value).__name__} has no text; {', '.join(levels)} have one", code="ir.text")
    return row


def _signature(levels: Mapping[str, LevelText], value: Any) -> Signature:
    return _row(levels, value).signature(value)


def _graph_lines(value: Captured | Recorded, opaque: Opaque, origins: OriginWriter) -> tuple[list[str], dict[str, Any]]:
    head = list(_head(value, opaque, origins))
    graph, outside = graph_lines(value.graph_module, _dialect(type(value)), opaque, origins)
    return [*head, *graph], outside


def _head(value: Captured | Recorded, opaque: Opaque, origins: OriginWriter) -> Iterator[str]:
    yield from fact_lines(value.facts, origins.comment)
    if value.facts == SizeFacts() and _is_symbolic(value):
        yield "symbolic"
    yield from signature_lines(value.signature, opaque)
    if isinstance(value, Functional):
        yield from guard_lines(value.guards, value.signature.inputs, opaque)
    if isinstance(value, Captured):
        yield from _example_lines(value.inputs, opaque)


def _example_lines(inputs: Sequence[Any], opaque: Opaque) -> Iterator[str]:
    """Yield a line for each input: its type, and the first input whose memory it shares."""
    owners: dict[int, int] = {}
    for number, example in enumerate(inputs):
        line = f"example {value_type(example, opaque)}"
        if isinstance(example, torch.Tensor):
            owner = owners.setdefault(example.untyped_storage()._cdata, number)
            line += "" if owner == number else f" of {owner}"
        yield line


def _is_symbolic(value: Captured | Recorded) -> bool:
    """Tell whether the tensors of a value belong to an environment, which could have made symbols of their sizes."""
    values = value.inputs if isinstance(value, Captured) else map(meta.value, value.graph_module.graph.nodes)
    tensors = (x for x in values if isinstance(x, FakeTensor))
    return any(x.fake_mode.shape_env is not None for x in itertools.islice(tensors, 1))


def signature_lines(signature: Signature, opaque: Opaque) -> Iterator[str]:
    """Yield the lines of a signature."""
    yield from (f"input({arguments_text(spec, opaque)})" for spec in signature.inputs)
    yield from (f"write({arguments_text(write, opaque)})" for write in signature.writes)
    yield from (f"output {record_text(spec, opaque)}" for spec in signature.outputs)
    for name in ("output_tree", "exit_grad_mode", "joint"):
        if getattr(signature, name) is not None:
            yield f"{name} {record_text(getattr(signature, name), opaque)}"
    if signature.symbols:
        places = [f"{name!r}: {record_text(place, opaque)}" for name, place in signature.symbols.items()]
        yield f"reads {{{', '.join(places)}}}"


def _dialect(level: type) -> Dialect:
    return TORCH if level is Captured else ATEN


# ---- reading ----------------------------------------------------------------------------------------------------


def _one(text: str, line: int, constants: Mapping[str, Any], thaw: Thaw | None, levels: Mapping[str, LevelText]) -> Any:
    """Read one graph with its head; `line` is the number of lines before it."""
    text, places = split_origins(text, line)
    header, graph = _HEADER.match(text), _GRAPH.search(text)
    if header is None or graph is None:
        fail("the first line must be `// level: <name> <version>`, and a line `// dialect: ...` must follow", line + 1)
    row = levels.get(header[1])
    if row is None or not 1 <= int(header[2]) <= SCHEMA:
        names = ", ".join(f"{name} {SCHEMA}" for name in levels)
        what = f"the text is level {header[1]} {header[2]}; this reader takes {names} and older"
        raise UnsupportedError(what, code="ir.schema")
    reader = record_reader(text[: graph.start()], line, constants)
    reader.places = places
    return row.read(reader, text[graph.start() :], line + text[: graph.start()].count("\n"), constants, thaw)


def _read_graph(level: Any) -> Callable[[Reader, str, int, Mapping[str, Any], Thaw | None], Any]:
    """Return what reads a value of a level of torch or ATen."""

    def read(reader: Reader, text: str, line: int, constants: Mapping[str, Any], thaw: Thaw | None) -> Any:
        facts = read_facts(reader.tokens, reader.origins)
        symbolic = bool(reader.tokens.accept("symbolic")) or facts != SizeFacts()
        mode, symbols = thaw(facts, symbolic=symbolic) if thaw is not None else (FakeTensorMode(), None)
        reader.fake_mode, reader.symbols = mode, symbols
        signature = read_signature(reader)
        guards = read_guards(reader, signature.inputs)
        examples = tuple(_examples(reader))
        reader.tokens.expect_kind("end")
        below = "\n" * line + text
        gm = parse_graph(
            below, _dialect(level), constants=constants, symbols=symbols, fake_mode=mode, places=reader.places
        )
        if level is Captured:
            return Captured(gm, examples, signature, facts)
        return level(gm, signature, facts, guards) if issubclass(level, Functional) else level(gm, signature, facts)

    return read


def read_guards(reader: Reader, inputs: Sequence[InputSpec]) -> tuple[GuardRecord, ...]:
    """Read the lines of guards of a program with these inputs."""
    guards = []
    line = reader.tokens.line
    while reader.tokens.accept("guard"):
        guard = reader.value()
        if not isinstance(guard, GuardRecord):
            fail(f"{guard!r} is no guard", line)
        try:
            guards.append(guard_of(guard, inputs))
        except ValueError as error:
            fail(f"a guard names inputs that the program lacks: {error}", line)
        line = reader.tokens.line
    return tuple(guards)


def read_signature(reader: Reader) -> Signature:
    """Read the lines of a signature."""
    inputs = tuple(InputSpec(*args, **more) for args, more in _calls(reader, "input"))
    writes = tuple(Write(*args, **more) for args, more in _calls(reader, "write"))
    outputs = []
    while reader.tokens.accept("output"):
        outputs.append(reader.value())
    rest: dict[str, Any] = {}
    for name in ("output_tree", "exit_grad_mode", "joint"):
        if reader.tokens.accept(name):
            rest[name] = reader.value()
    symbols = reader.value() if reader.tokens.accept("reads") else {}
    return Signature(inputs, tuple(outputs), writes, symbols=symbols, **rest)


def _calls(reader: Reader, word: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    while reader.tokens.accept(word):
        yield reader.arguments()


def _examples(reader: Reader) -> Iterator[Any]:
    examples: list[Any] = []
    while reader.tokens.accept("example"):
        value = reader.type()
        if reader.tokens.accept("of"):
            token = reader.tokens.expect_kind("number")
            owner = examples[int(token.text)] if int(token.text) < len(examples) else None
            if not (isinstance(owner, FakeTensor) and isinstance(value, FakeTensor)):
                fail(f"example {token.text} is no tensor before this one", token.line)
            value = _in_memory_of(owner, value)
        examples.append(value)
        yield value


def _in_memory_of(owner: FakeTensor, value: FakeTensor) -> torch.Tensor:
    layout = value.shape, value.stride(), value.storage_offset()
    raw = strided_over(owner.untyped_storage(), value.dtype, *layout)
    return FakeTensor(owner.fake_mode, raw, value.fake_device).requires_grad_(value.requires_grad)


def record_reader(text: str, line: int, constants: Mapping[str, Any]) -> Reader:
    """Return a reader of the records in a text that has `line` lines before it."""
    return _RecordReader(Tokens(tokenize("\n" * line + text)), ATEN, constants, None, None)


class _RecordReader(Reader):
    """Reads records among constants; a number in backquotes is a size expression, which is what records hold."""

    def made(self, name: str) -> Callable[..., Any] | None:
        return MAKERS.get(name) or super().made(name)

    def quoted(self, text: str, line: int) -> Any:
        return SizeExpression(text.strip("`"))


LEVELS: Mapping[str, LevelText] = MappingProxyType(
    {
        level.__name__: LevelText(level, lambda value: value.signature, _graph_lines, _read_graph(level))
        for level in (Captured, Recorded, Functional, Half)
    }
)
