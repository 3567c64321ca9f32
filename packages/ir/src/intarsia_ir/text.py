"""Text of the values of levels: all of a value, so that every stage runs from a file.

    // level: Functional 1
    symbol s0 in [2, inf] from 'x.size(0)' hint 6
    fact '((s0 % 2) == 0)'  # model.py:3 in f
    input('x', source=source('self.x'), written=True)
    write(0, 0)
    output Fresh(1)
    reads {'s0': InputNumber(0)}
    // dialect: aten 1
    graph(%x: f32[s0, 4]) {
      %mul_tensor: f32[s0, 4] = aten.mul.Tensor(%x, 2)  # model.py:4 in f (mul)
      ...
    }

Nodes have their own names, which plans and the levels below use too. First come the size facts, with each symbol
declared once; then the signature, a line for each input, write and output; then the guards; then the graph in the text
of its dialect. A captured graph has lines `example f32[2, 3]` for its inputs besides. A partition is its graphs, one
after the other, under a line for each pair of halves.

What has no text (functions of the user, attributes of modules, opaque objects) is a name in it: `constants_of` gives
the objects and `parse_value` takes them. Size symbols need an environment, which `intarsia_shapes.thawed` makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch._subclasses import FakeTensorMode

from intarsia_ir import aten as aten_dialect
from intarsia_ir import torch as torch_dialect
from intarsia_ir._literals import Opaque, value_type
from intarsia_ir._parse import Reader
from intarsia_ir._print import Dialect, graph_lines, origins_comment
from intarsia_ir._record_text import MAKERS, arguments_text, record_text
from intarsia_ir._tokens import Tokens, fail, tokenize
from intarsia_ir.aten.text import DIALECT as ATEN
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.fact_text import fact_lines, read_facts
from intarsia_ir.records import GuardRecord, Halves, InputSpec, Signature, SizeExpression, SizeFacts, Write
from intarsia_ir.torch.text import DIALECT as TORCH
from intarsia_ir.values import Captured, Functional, Half, Partition, Recorded

__all__ = ["SCHEMA", "Symbols", "Thaw", "Value", "constants_of", "parse_value", "print_value"]

SCHEMA = 1
Value = Captured | Recorded | Partition[Half]
Symbols = Callable[[str, str], Any]
Thaw = Callable[[SizeFacts], tuple[FakeTensorMode, Symbols]]

_LEVELS: Mapping[str, Any] = {cls.__name__: cls for cls in (Captured, Recorded, Functional, Half)}
_HEADER = re.compile(r"^// level: (\w+) (\d+)\n", re.MULTILINE)
_GRAPH = re.compile(r"^// dialect: ", re.MULTILINE)


def print_value(value: Value) -> str:
    """Return the text of a value, ending in a newline.

    Raises:
        UnsupportedError: Something in the graph has no text; halves of a partition that aren't those of its graphs.

    Example:
        >>> text = '''// level: Recorded 1
        ... input('x')
        ... output Fresh(0)
        ... // dialect: aten 1
        ... graph(%x: f32[2, 3]) {
        ...   %y: f32[2, 3] = aten.add.Tensor(%x, 1, alpha=2)  # model.py:12 in forward (add)
        ...   return (%y,)
        ... }
        ... '''
        >>> print_value(parse_value(text)) == text
        True
    """
    return "\n".join(_lines(value, Opaque())[0]) + "\n"


def constants_of(value: Value) -> dict[str, Any]:
    """Return what `parse_value(print_value(value), constants=...)` needs."""
    opaque = Opaque()
    return {**_lines(value, opaque)[1], **opaque.named}


def parse_value(text: str, *, constants: Mapping[str, Any] | None = None, thaw: Thaw | None = None) -> Value:
    """Return the value that `print_value` wrote as `text`.

    Args:
        text: One value.
        constants: What the text refers to by name.
        thaw: Makes the mode that the tensors of a graph belong to, and its size symbols, from size facts. A new
            FakeTensorMode when left out; then there may be no symbols.

    Raises:
        InvalidArgumentError: The text can't be read; the message has the line.
        UnsupportedError: The text is of another version.
    """
    constants = constants or {}
    if not text.startswith("// partition 1\n"):
        whole: Value = _one(text, 0, constants, thaw)
        return whole
    starts = [match.start() for match in _HEADER.finditer(text)]
    if not starts:
        fail("a partition has graphs, each with a line `// level: <name> <version>`", 1)
    head = _reader(text[: starts[0]], 0, constants)
    pairs = []
    while head.tokens.accept("halves"):
        pairs.append(head.arguments())
    head.tokens.expect_kind("end")
    ends = [*starts[1:], len(text)]
    graphs = [_one(text[a:b], text[:a].count("\n"), constants, thaw) for a, b in zip(starts, ends, strict=True)]
    forward, *backwards = graphs
    if len(backwards) != len(pairs):
        fail(f"there are {len(pairs)} lines `halves(...)` for {len(backwards)} backward graphs", 1)
    fits = zip(backwards, pairs, strict=True)
    halves = [Halves(forward.signature, b.signature, *args, **more) for b, (args, more) in fits]
    return Partition(forward, tuple(backwards), tuple(halves))


# ---- writing ----------------------------------------------------------------------------------------------------


def _lines(value: Value, opaque: Opaque) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of a value, and what they refer to by name besides opaque objects."""
    if not isinstance(value, Partition):
        head = [f"// level: {type(value).__name__} {SCHEMA}", *_head(value, opaque)]
        graph, outside = graph_lines(value.graph_module, _dialect(type(value)), opaque)
        return [*head, *graph], outside
    lines, named = ["// partition 1"], dict[str, Any]()
    for backward, halves in zip(value.backwards, value.halves, strict=True):
        if (halves.forward, halves.backward) != (value.forward.signature, backward.signature):
            raise UnsupportedError(
                "halves speak of other signatures than those of their graphs",
                code="ir.text",
                hints=("a stage that changes a signature changes it in `Partition.halves` as well",),
            )
        lines.append(f"halves({arguments_text(halves, opaque, without=('forward', 'backward'))})")
    for one in value.graphs:
        more, outside = _lines(one, opaque)
        lines, named = [*lines, *more], {**named, **outside}
    return lines, named


def _head(value: Captured | Recorded, opaque: Opaque) -> Iterator[str]:
    yield from fact_lines(value.facts, origins_comment)
    yield from signature_lines(value.signature, opaque)
    if isinstance(value, Functional):
        yield from (f"guard({arguments_text(guard, opaque)})" for guard in value.guards)
    if isinstance(value, Captured):
        yield from (f"example {value_type(example, opaque)}" for example in value.inputs)


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


def _one(text: str, line: int, constants: Mapping[str, Any], thaw: Thaw | None) -> Any:
    """Read one graph with its head; `line` is the number of lines before it."""
    header, graph = _HEADER.match(text), _GRAPH.search(text)
    if header is None or graph is None:
        fail("the first line must be `// level: <name> <version>`, and a line `// dialect: ...` must follow", line + 1)
    level = _LEVELS.get(header[1])
    if level is None or int(header[2]) != SCHEMA:
        known = ", ".join(f"{name} {SCHEMA}" for name in _LEVELS)
        what = f"the text is level {header[1]} {header[2]}; this reader takes {known}"
        raise UnsupportedError(what, code="ir.schema")
    reader = _reader(text[: graph.start()], line, constants)
    facts = read_facts(reader.tokens, reader.origins)
    mode, symbols = thaw(facts) if thaw is not None else (FakeTensorMode(), None)
    reader.fake_mode, reader.symbols = mode, symbols
    signature = read_signature(reader)
    guards = tuple(GuardRecord(*args, **more) for args, more in _calls(reader, "guard"))
    examples = tuple(_examples(reader))
    reader.tokens.expect_kind("end")
    body = "\n" * (line + text[: graph.start()].count("\n")) + text[graph.start() :]
    dialect: Any = torch_dialect if level is Captured else aten_dialect
    gm = dialect.parse_ir(body, constants=constants, symbols=symbols, fake_mode=mode)
    if level is Captured:
        return Captured(gm, examples, signature, facts)
    return level(gm, signature, facts, guards) if issubclass(level, Functional) else level(gm, signature, facts)


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
    while reader.tokens.accept("example"):
        yield reader.type()


def _reader(text: str, line: int, constants: Mapping[str, Any]) -> Reader:
    """Return a reader of the records in a head."""
    return _RecordReader(Tokens(tokenize("\n" * line + text)), ATEN, constants, None, FakeTensorMode())


class _RecordReader(Reader):
    """Reads records among constants; a number in backquotes is a size expression, which is what records hold."""

    def made(self, name: str) -> Callable[..., Any] | None:
        return MAKERS.get(name) or super().made(name)

    def quoted(self, text: str, line: int) -> Any:
        return SizeExpression(text.strip("`"))
