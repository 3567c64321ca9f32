"""Text of the values from loops down, and with them of every value: all of it, so that every stage runs from a file.

    // level: Emitted 2
    device device('cpu')
    target Target(isa='avx2', compiler='g++', threads=8)
    apart False
    input('x')
    output Fresh(0)
    // dialect: kernels 2
    graph(%x: f32[64, 100]) {
      ...
    }
    // launches 3
    ...
    // source
    made KernelSource('', 'cpp', launches=(...))
    scratch %part0: f32[64, 4]
    text 120 lines
    ...
    origins under '/srv/project'
      ...

A buildable value has a line `name 'f'` after its target, calls in place of kernels (`called`), and no launches.

A head has the contract: where it runs, what it is compiled for, then the signature and the guards as above. Size facts
are those of the program, in the text of its dialect. A launched value has its launches after that
(`launch_text`), an emitted one its source after these, word for word. The footer has the lines of all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir import text as upper
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.origin_text import OriginWriter
from intarsia_ir.records import KernelSource
from intarsia_ir.text import (
    LevelText,
    Opaque,
    Reader,
    Thaw,
    guard_lines,
    read_guards,
    read_signature,
    record_text,
    signature_lines,
)
from intarsia_loops._parse import Parser, parse_called, parse_program
from intarsia_loops._subgraphs import subgraph_constants
from intarsia_loops._text import buffer_type, program_lines, program_text
from intarsia_loops._tokens import fail, tokens_of
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.launch_text import HEADER, launches_lines, parse_launches
from intarsia_loops.launches import Launches
from intarsia_loops.levels import Buildable, Contract, Emitted, Kernels, Launched, Loops
from intarsia_loops.program import Buffer

__all__ = ["LEVELS", "constants_of", "parse_value", "print_value"]

Lower = Loops | Kernels | Launched | Emitted
_SOURCE = "// source"


def print_value(value: Any) -> str:
    """Return the text of a value of any level but the last, or of a partition of such; it ends in a newline.

    Raises:
        UnsupportedError: Something in it has no text; launches that are of another program than its graph.
    """
    return upper.print_value(value, levels=LEVELS)


def constants_of(value: Any) -> dict[str, Any]:
    """Return what `parse_value(print_value(value), constants=...)` needs."""
    return upper.constants_of(value, levels=LEVELS)


def parse_value(text: str, *, constants: Mapping[str, Any] | None = None, thaw: Thaw | None = None) -> Any:
    """Return the value that `print_value` wrote as `text`; arguments and errors as in `intarsia_ir.text`."""
    return upper.parse_value(text, constants=constants, thaw=thaw, levels=LEVELS)


# ---- writing ----------------------------------------------------------------------------------------------------


def _lines(value: Lower, opaque: Opaque, origins: OriginWriter) -> tuple[list[str], dict[str, Any]]:
    program = from_fx(value.graph_module)
    dialect = "loops" if isinstance(value, Loops) else "kernels"
    lines = [*_contract(value.contract, opaque), *program_lines(program, dialect, origins)]
    if isinstance(value, Kernels):
        lines.insert(2, f"apart {value.apart}")
    if isinstance(value, Launched | Emitted):
        bare = [program_text(replace(p, placement=None), dialect) for p in (program, value.launches.program)]
        if bare[0] != bare[1]:
            raise UnsupportedError("the launches are of another program than the graph beside them", code="ir.text")
        lines += launches_lines(value.launches, origins)
    if isinstance(value, Emitted):
        lines += _source_lines(value.source, opaque)
    return lines, {**program.constants, **subgraph_constants(program)}


def _buildable_lines(value: Buildable, opaque: Opaque, origins: OriginWriter) -> tuple[list[str], dict[str, Any]]:
    device, target, *rest = _contract(value.contract, opaque)
    graph = program_lines(value.program, "kernels", origins)
    lines = [device, target, f"name {value.name!r}", *rest, *graph, *_source_lines(value.source, opaque)]
    return lines, {**value.program.constants, **subgraph_constants(value.program)}


def _contract(contract: Contract, opaque: Opaque) -> list[str]:
    return [
        f"device {record_text(contract.device, opaque)}",
        f"target {record_text(contract.target, opaque)}",
        *signature_lines(contract.signature, opaque),
        *guard_lines(contract.guards, contract.signature.inputs, opaque),
    ]


def _source_lines(source: KernelSource, opaque: Opaque) -> Iterator[str]:
    yield _SOURCE
    yield f"made {record_text(replace(source, text='', parts=(), scratch=()), opaque)}"
    for name, buffer in source.scratch:
        yield f"scratch %{name}: {buffer_type(buffer)}"
    for word, text in (("text", source.text), *[("part", part) for part in source.parts]):
        lines = text.split("\n")
        yield f"{word} {len(lines)} lines"
        yield from lines


# ---- reading ----------------------------------------------------------------------------------------------------


def _read(level: type) -> Callable[[Reader, str, int, Mapping[str, Any], Thaw | None], Any]:
    """Return what reads a value of a level."""

    def read(reader: Reader, text: str, line: int, constants: Mapping[str, Any], thaw: Thaw | None) -> Any:
        contract, apart = _read_contract(reader, "apart")
        graph, launches, source = _parts(text, line)
        dialect = "loops" if level is Loops else "kernels"
        gm = to_fx(parse_program(graph.text, dialect, _tensors(constants), line=graph.line, places=reader.places))
        if level is Loops:
            return Loops(gm, contract)
        if level is Kernels:
            return Kernels(gm, contract, apart)
        plan: Launches = parse_launches(launches.text, from_fx(gm), line=launches.line, places=reader.places)
        if level is Launched:
            return Launched(gm, contract, plan)
        return Emitted(gm, contract, plan, _read_source(source, constants))

    return read


def _read_buildable(reader: Reader, text: str, line: int, constants: Mapping[str, Any], thaw: Thaw | None) -> Buildable:
    contract, name = _read_contract(reader, "name")
    graph, _, source = _parts(text, line)
    program = parse_called(graph.text, _tensors(constants), line=graph.line, places=reader.places)
    return Buildable(program, contract, _read_source(source, constants), name)


def _read_contract(reader: Reader, word: str) -> tuple[Contract, Any]:
    """Read a head: the contract, and what follows `word` in it, if that is there."""
    tokens = reader.tokens
    tokens.expect("device")
    device = reader.value()
    tokens.expect("target")
    target = reader.value()
    also = reader.value() if tokens.accept(word) else False
    signature = read_signature(reader)
    contract = Contract(signature, read_guards(reader, signature.inputs), target, device)
    tokens.expect_kind("end")
    return contract, also


def _tensors(constants: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in constants.items() if isinstance(value, torch.Tensor)}


class _Part:
    """A part of a text, with the number of lines before it."""

    def __init__(self, text: str, line: int) -> None:
        self.text, self.line = text, line


def _parts(text: str, line: int) -> tuple[_Part, _Part, _Part]:
    """Cut the text of a value into its graph, its launches and its source; what isn't there is ""."""
    launches, source = (
        re.compile(rf"^{re.escape(header)}$", re.MULTILINE).search(text) for header in (HEADER, _SOURCE)
    )
    source_at = source.start() if source else len(text)
    starts = [0, launches.start() if launches and launches.start() < source_at else source_at, source_at]
    ends = [*starts[1:], len(text)]
    graph, middle, end = (_Part(text[a:b], line + text[:a].count("\n")) for a, b in zip(starts, ends, strict=True))
    return graph, middle, end


def _read_source(part: _Part, constants: Mapping[str, Any]) -> KernelSource:
    lines = part.text.split("\n")
    if len(lines) < 3 or not lines[1].startswith("made "):
        fail(f"expected a line {_SOURCE!r}, and below it a line `made KernelSource(...)`", part.line + 1)
    reader = upper.record_reader(lines[1].removeprefix("made "), part.line + 1, constants)
    source = reader.value()
    at, scratch = 2, list[tuple[str, Buffer]]()
    while lines[at].startswith("scratch "):
        parser = Parser(tokens_of(lines[at].removeprefix("scratch "), part.line + at), {})
        name = parser.typed_buffer()
        scratch.append((name, parser.buffers[name]))
        at += 1
    texts = list[str]()
    while at < len(lines) - 1:
        head = re.fullmatch(r"(text|part) (\d+) lines", lines[at])
        if head is None or at + int(head[2]) >= len(lines):
            fail(
                f"expected `text N lines` or `part N lines`, and as many below, found {lines[at]!r}", part.line + at + 1
            )
        texts.append("\n".join(lines[at + 1 : at + 1 + int(head[2])]))
        at += 1 + int(head[2])
    if not texts:
        fail("the source has no text", part.line + 1)
    kernel_source: KernelSource = replace(source, text=texts[0], parts=tuple(texts[1:]), scratch=tuple(scratch))
    return kernel_source


LEVELS: Mapping[str, LevelText] = MappingProxyType(
    {
        **upper.LEVELS,
        **{
            level.__name__: LevelText(level, lambda value: value.contract.signature, _lines, _read(level))
            for level in (Loops, Kernels, Launched, Emitted)
        },
        Buildable.__name__: LevelText(
            Buildable, lambda value: value.contract.signature, _buildable_lines, _read_buildable
        ),
    }
)
