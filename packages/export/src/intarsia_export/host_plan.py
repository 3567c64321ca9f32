"""The steps of a graph as text, for a process without Python: `include/intarsia/export.h` reads and carries them out.

A line is words with blanks between them; the first says what it is. Sizes are written in postfix notation over size
symbols, `s0,2,*,3,+`; a list of sizes has semicolons, `s0;3`, and is `-` when it is empty; text is percent-encoded.

    argument NAME                               a tensor among the arguments, in their order
    tensor POSITION TYPE SHAPE STRIDES          what it must be; `?` is open
    symbol NAME POSITION size|stride|storage_offset DIM
    check SIZE TEXT                             must not be 0
    apart POSITION POSITION...                  the first shares memory with none of the others
    input SLOT argument POSITION | weight NAME | symbol NAME
    constant SLOT NAME
    arena BYTES
    own SLOT TYPE SHAPE STRIDES                 new memory
    launch ENTRY ADDRESS... NUMBER...           p:SLOT, o:BYTES (of the arena); i:SIZE
    call NAME OVERLOAD N VALUE... M (NAME VALUE)... list|each SLOT...
    layout SLOT TYPE SHAPE STRIDES ALIAS        what a result of a call must be; it is copied where it may share memory
    require SIZE TEXT                           as `check`, while the graph runs
    drop SLOT...
    result own|shared VALUE                     of the graph, in order
    write INPUT RESULT
    output fresh RESULT | input INPUT | value VALUE
    output view_of_input INPUT SHAPE STRIDES OFFSET | view_of_result RESULT SHAPE STRIDES OFFSET
    true N                                      the first outputs that must be true
    leaf output N | argument POSITION | weight NAME | value VALUE
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch
import torch.utils._pytree as pytree

from intarsia_export.trees import leaves_of
from intarsia_ir.aten import effects
from intarsia_ir.dtypes import dtype_from_name, itemsize
from intarsia_ir.guards import OverlapGuard, TensorGuard
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    InputItself,
    Launch,
    SizeExpression,
    SizeSource,
)
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Condition, Extern, TensorRef
from intarsia_runtime.extern import MAY_RETURN_OPERAND
from intarsia_runtime.steps import last_uses, steps_of

if TYPE_CHECKING:
    from intarsia_export.contents import Variant

__all__ = ["NoPlanError", "host_plan", "literal", "postfix"]

# numbers of c10::ScalarType, which files have held since the beginning
_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%", ast.And: "and", ast.Or: "or",
    ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_PLACE = re.compile(r"(?P<source>.+)\.(?P<kind>size|stride|storage_offset)\((?P<dim>\d*)\)")


class NoPlanError(Exception):
    """Something has no form without Python; its text says what."""


def host_plan(variant: Variant, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return the plan of a variant, or "" and why it has none.

    Args:
        variant: Without a plan.
        arguments: Parameter name -> value, as at the export.
    """
    try:
        return "\n".join(_Writer(variant, arguments).lines()) + "\n", ""
    except NoPlanError as error:
        return "", str(error)


class _Writer:
    def __init__(self, variant: Variant, arguments: Mapping[str, Any]) -> None:
        self.variant = variant
        self.half = variant.finished.program.forward
        self.program = self.half.program
        self.signature = self.half.contract.signature
        self.offsets = self.program.placement.offsets if self.program.placement else {}
        self.names = [path for path, value in _paths(arguments) if isinstance(value, torch.Tensor)]
        self.slots: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        if self.half.source.language != "cpp":
            raise NoPlanError(f"its kernels are in {self.half.source.language}")
        yield "host 1"
        yield from (f"argument {quote(name)}" for name in self.names)
        yield from self._demands()
        yield from self._inputs()
        yield from self._steps()
        yield from self._results()
        yield f"true {self.variant.checks}"
        yield from map(self._leaf, leaves_of(self.variant.result))

    # -- what a call must be ---------------------------------------------------------------------------------------

    def _position(self, place: Any) -> int:
        if str(place) not in self.names:
            raise NoPlanError(f"it reads {place}, which is no tensor among the arguments")
        return self.names.index(str(place))

    def _demands(self) -> Iterator[str]:
        for guard in self.variant.guards:
            if isinstance(guard, TensorGuard):
                wanted = guard.facts
                layout = f"{_open_sizes(wanted.shape)} {_open_sizes(wanted.strides)}"
                yield f"tensor {self._position(guard.source)} {_type(wanted.dtype)} {layout}"
            elif isinstance(guard, OverlapGuard):
                yield f"apart {' '.join(str(self._position(p)) for p in (guard.source, *guard.others))}"
        facts = self.variant.finished.facts
        for name, text in facts.symbols.items():
            match = _PLACE.fullmatch(text)
            if match is None:
                raise NoPlanError(f"the size {name} is read from {text}")
            yield f"symbol {name} {self._position(match['source'])} {match['kind']} {match['dim'] or 0}"
        for name, (low, high) in facts.ranges.items():
            bounds = [f"{low} <= {name}"] * (low is not None) + [f"{name} <= {high}"] * (high is not None)
            yield from (f"check {postfix(text)} {quote(text)}" for text in bounds)
        yield from (f"check {postfix(f.relation)} {quote(f.relation)}" for f in facts.facts)

    def _inputs(self) -> Iterator[str]:
        for spec, name, place in zip(self.signature.inputs, self.program.inputs, self.variant.inputs, strict=True):
            slot = self._slot(name)
            if isinstance(place, str):
                yield f"input {slot} weight {quote(place)}"
            elif isinstance(place, SizeSource):
                yield f"input {slot} symbol {name}"
                yield f"symbol {name} {self._position(place.base)} {place.kind} {place.dim or 0}"
            elif name in self.program.buffers:
                yield f"input {slot} argument {self._position(place)}"
            else:
                raise NoPlanError(f"it takes the number {spec.name}")
        for name, value in self.program.constants.items():
            if not isinstance(value, torch.Tensor):
                raise NoPlanError(f"the constant {name} is no tensor")
            yield f"constant {self._slot(name)} {quote(name)}"
        if self.program.placement is not None and self.offsets:
            yield f"arena {postfix(str(self.program.placement.arena_bytes))}"

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    # -- steps -----------------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[str]:
        source = self.half.source
        scratch = dict(source.scratch)
        if source.counters:
            raise NoPlanError("its launches share counters")
        steps = steps_of(self.program, source.launches)
        last, live = last_uses(self.program, steps), set[str]()
        for position, step in enumerate(steps):
            if isinstance(step, Launch):
                for name in step.buffers:
                    if name not in live and self._is_own(name):
                        live.add(name)
                        yield f"own {self._slot(name)} {_layout(scratch.get(name) or self.program.buffers[name])}"
                words = [f"o:{self.offsets[n]}" if n in self.offsets else f"p:{self._slot(n)}" for n in step.buffers]
                yield " ".join(["launch", step.entry, *words, *[f"i:{size}" for size in step.sizes]])
            else:
                yield from self._call(step, {n for n in step.outs if last.get(n, -1) > position})
                live |= {n for n in step.outs if last.get(n, -1) > position}
            dead = sorted(name for name in live if last.get(name, -1) <= position)
            live.difference_update(dead)
            if dead:
                yield f"drop {' '.join(str(self._slot(name)) for name in dead)}"

    def _is_own(self, name: str) -> bool:
        return name not in self.offsets and name not in self.program.constants and name not in self.program.inputs

    def _call(self, item: Extern, used: set[str]) -> Iterator[str]:
        if item.target is torch.ops.aten._assert_scalar.default:
            condition, message = item.args
            if not isinstance(condition, Condition):
                raise NoPlanError("it checks a number that it computes")
            yield f"require {postfix(f'({condition.left}) {condition.op} ({condition.right})')} {quote(message)}"
            return
        if isinstance(item.target, HigherOrderOp):
            raise NoPlanError(f"a call of {item.target.name} has graphs of its own")
        if any(name and name not in self.program.buffers for name in item.outs):
            raise NoPlanError(f"{item.target} gives a size that depends on data")
        schema = item.target._schema
        words = ["call", schema.name, schema.overload_name or "-", str(len(item.args))]
        words += [word for value in item.args for word in self._value(value)]
        words.append(str(len(item.kwargs)))
        for name, value in item.kwargs:
            words += [name, *self._value(value)]
        yield " ".join([*words, *self._targets(item, used)])
        shares = int(str(item.target) in MAY_RETURN_OPERAND or bool(effects(item.target).views))
        for name in item.outs:
            if name in used:
                yield f"layout {self._slot(name)} {_layout(self.program.buffers[name])} {shares}"

    def _targets(self, item: Extern, used: set[str]) -> list[str]:
        returns = item.target._schema.returns
        outs = [str(self._slot(name)) if name in used else "_" for name in item.outs]
        if len(returns) == 1:
            return ["list" if isinstance(returns[0].type, torch.ListType) else "each", *outs]
        if len(outs) != len(returns):  # there are no entries for results that aren't tensors
            rest = iter(outs)
            outs = [next(rest, "_") if "Tensor" in str(r.type) else "_" for r in returns]
        return ["each", *outs]

    def _value(self, value: Any) -> list[str]:
        if isinstance(value, TensorRef):
            return [self._ref(value)]
        if isinstance(value, (tuple, list)):
            return ["[", *[word for v in value for word in self._value(v)], "]"]
        if isinstance(value, IndexExpr):
            return [f"i:{postfix(repr(value))}"]
        return [literal(value)]

    def _ref(self, ref: TensorRef) -> str:
        buffer = self.program.buffers[ref.buffer]
        layout = f"{_sizes(ref.shape)}:{_sizes(ref.strides)}:{postfix(repr(ref.offset))}"
        if ref.buffer in self.offsets:
            start = self.offsets[ref.buffer] // itemsize(buffer.dtype)
            return f"a:{start}:{_type(dtype_from_name(buffer.dtype))}:{layout}"
        slot = self._slot(ref.buffer)
        whole = ref.shape == buffer.shape and ref.strides == buffer.strides and repr(ref.offset) == "0"
        return f"t:{slot}" if whole else f"v:{slot}:{layout}"

    # -- results ---------------------------------------------------------------------------------------------------

    def _results(self) -> Iterator[str]:
        shared = {*self.program.inputs, *self.program.constants, *self.offsets}
        for output in self.program.outputs:
            (word,) = self._value(output)
            of_others = isinstance(output, TensorRef) and output.buffer in shared
            yield f"result {'shared' if of_others else 'own'} {word}"
            shared |= {output.buffer} if isinstance(output, TensorRef) else set()
        yield from (f"write {write.input} {write.result}" for write in self.signature.writes)
        for spec in self.signature.outputs:
            match spec:
                case Fresh(result=result):
                    yield f"output fresh {result}"
                case InputItself(input=position):
                    yield f"output input {position}"
                case Constant(value=value):
                    yield f"output value {literal(value)}"
                case AliasOfInput(input=position, layout=layout):
                    yield f"output view_of_input {position} {_view(layout)}"
                case AliasOfOutput(base=base, layout=layout):
                    yield f"output view_of_result {base} {_view(layout)}"
                case _:
                    raise NoPlanError(f"an output is a {type(spec).__name__}")

    def _leaf(self, leaf: Mapping[str, Any]) -> str:
        from intarsia_export.contents import value_of  # records need the plan

        ((kind, what),) = leaf.items()
        match kind:
            case "result":
                return f"leaf output {what}"
            case "argument":
                return f"leaf argument {self._position(what)}"
            case "weight":
                return f"leaf weight {quote(what)}"
            case "size":
                return f"leaf value i:{postfix(what)}"
        return f"leaf value {literal(value_of(what))}"


def _paths(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    from intarsia_export.calls import path_text  # calls need contents

    for name, value in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield name + path_text(path), leaf


def literal(value: Any) -> str:
    """Return the word of a Python value."""
    if value is None:
        return "n"
    if isinstance(value, bool):
        return f"b:{int(value)}"
    if isinstance(value, int):
        return f"i:{value}"
    if isinstance(value, float):
        return f"f:{value!r}"
    if isinstance(value, str):
        return f"s:{quote(value)}"
    if isinstance(value, torch.dtype):
        return f"i:{_type(value)}"
    if isinstance(value, torch.memory_format):
        return f"i:{_FORMATS[value]}"
    if value is torch.strided:
        return "i:0"
    if isinstance(value, torch.device) and value.type == "cpu":
        return "d:cpu"
    raise NoPlanError(f"{value!r} is a {type(value).__name__}")


def _open_sizes(sizes: Iterable[int | None]) -> str:
    return ";".join("?" if n is None else str(n) for n in sizes) or "-"


def _type(dtype: torch.dtype) -> int:
    if dtype not in _TYPES:
        raise NoPlanError(f"it has elements of {dtype}")
    return _TYPES[dtype]


def _layout(buffer: Any) -> str:
    return f"{_type(dtype_from_name(buffer.dtype))} {_sizes(buffer.shape)} {_sizes(buffer.strides)}"


def _view(layout: Any) -> str:
    shape, strides, offset = layout
    return f"{_numbers(shape)} {_numbers(strides)} {postfix(_number_text(offset))}"


def _numbers(numbers: Iterable[Any]) -> str:
    return ";".join(postfix(_number_text(n)) for n in numbers) or "-"


def _number_text(number: Any) -> str:
    return number.text if isinstance(number, SizeExpression) else str(number)


def _sizes(exprs: Iterable[IndexExpr]) -> str:
    return ";".join(postfix(repr(e)) for e in exprs) or "-"


def postfix(text: str) -> str:
    """Return Python's notation of a size or relation in postfix notation."""
    return ",".join(_words(ast.parse(text, mode="eval").body, text))


def _words(node: ast.AST, text: str) -> list[str]:
    match node:
        case ast.Constant(value=bool() | int() as value):
            return [str(int(value))]
        case ast.Name(id=name):
            return [name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return [*_words(left, text), *_words(right, text), _OPERATORS[type(op)]]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return [*_words(left, text), *_words(right, text), _OPERATORS[type(op)]]
        case ast.BoolOp(op=op, values=[first, *rest]):
            words = _words(first, text)
            for other in rest:
                words += [*_words(other, text), _OPERATORS[type(op)]]
            return words
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["0", *_words(operand, text), "-"]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [*_words(operand, text), "0", "=="]
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[left, right]):
            return [*_words(left, text), *_words(right, text), name]
    raise NoPlanError(f"sizes are computed by {text}")
