"""Reading programs from text: the inverse of `_text`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from intarsia_ir.dtypes import DTYPE_NAMES, dtype_from_name
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.origin_text import NO_PLACES, Places, origins_of_comment, split_origins
from intarsia_ir.records import Origin, SizeFact, SizeFacts
from intarsia_loops._subgraphs import read_higher_order
from intarsia_loops._tokens import Token, fail, tokens_after_head
from intarsia_loops.called import Called, KernelCall
from intarsia_loops.forms import OPERANDS
from intarsia_loops.index import ZERO, Atom, IndexExpr, axis, lift, row_major
from intarsia_loops.ops import SCALAR_OPS, Rule
from intarsia_loops.program import (
    SCHEMA,
    Buffer,
    Condition,
    Extern,
    Item,
    Kernel,
    Nest,
    Placement,
    Program,
    TensorRef,
    Val,
    val,
)
from intarsia_loops.program import load as make_load
from intarsia_loops.symbols import symbol

__all__ = ["Parser", "parse_called", "parse_program"]

_SCHEMAS = (SCHEMA, 1)
T = TypeVar("T")
_SHORT_DTYPES = frozenset(DTYPE_NAMES.values())


def parse_program(
    text: str,
    dialect: str,
    constants: Mapping[str, torch.Tensor] | None = None,
    *,
    line: int = 0,
    places: Places | None = None,
) -> Program:
    """Return the program with this text.

    Args:
        text: What `program_text` gives.
        dialect: The dialect that its header must name.
        constants: Tensor of every `constant` in the head; the text has only their types.
        line: Lines before it in what the user wrote.
        places: What numbers of lines stand for, in a part of a text; its own footer says it when left out.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
        UnsupportedError: It is of a version that isn't read.
    """
    if places is None:
        text, places = split_origins(text, line)
    return Parser(tokens_after_head(text, dialect, _SCHEMAS, line), constants or {}, places).program()


def parse_called(
    text: str, constants: Mapping[str, torch.Tensor] | None = None, *, line: int = 0, places: Places | None = None
) -> Called:
    """Return the program of calls with this text; arguments and errors as in `parse_program`."""
    if places is None:
        text, places = split_origins(text, line)
    return Parser(tokens_after_head(text, "kernels", _SCHEMAS, line), constants or {}, places).called()


class Parser:
    """Recursive descent over the tokens; index expressions and values know the names in scope."""

    def __init__(self, tokens: list[Token], constants: Mapping[str, torch.Tensor], places: Places = NO_PLACES) -> None:
        self.tokens, self.at = tokens, 0
        self.places = places
        self.given_constants = constants
        self.facts = SizeFacts()
        self.buffers: dict[str, Buffer] = {}
        self.axes: dict[str, Atom] = {}
        self.values: dict[str, Val] = {}

    # ---- tokens

    def peek(self) -> Token:
        token = self.tokens[self.at]
        while token.kind == "comment":
            self.at += 1
            token = self.tokens[self.at]
        return token

    def take(self) -> Token:
        token = self.peek()
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        token = self.peek()
        if token.text == text and token.kind in ("sign", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        token = self.peek()
        if not self.accept(text):
            fail(f"expected {text!r}, found {token.text or 'the end'!r}", token.line)

    def kind(self, kind: str) -> str:
        token = self.take()
        if token.kind != kind:
            fail(f"expected a {kind}, found {token.text or 'the end'!r}", token.line)
        return token.text

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.peek()
        text = self.kind("number")
        if not text.isdigit():
            fail(f"expected an integer, found {text!r}", token.line)
        return -int(text) if negative else int(text)

    def string(self) -> str:
        text = self.kind("string")
        return (
            bytes(text[1:-1], "utf-8").decode("unicode_escape").encode("latin-1").decode("utf-8")
            if "\\" in text
            else text[1:-1]
        )

    def origins(self) -> tuple[Origin, ...]:
        """Origins from the comment that follows on the same line."""
        token = self.tokens[self.at]
        if token.kind != "comment" or token.line != self.tokens[self.at - 1].line:
            return ()
        self.at += 1
        return origins_of_comment(token.text, self.places, token.line)

    # ---- the program

    def program(self) -> Program:
        return Program(*self._fields(self._item))

    def called(self) -> Called:
        return Called(*self._fields(self._call_of))

    def _fields(self, item: Callable[[], T]) -> tuple[Any, ...]:
        """Read a program; return its fields, in order."""
        self.read_facts()
        inputs, constants = self.read_head()
        items: list[T] = []
        while not self.accept("return"):
            items.append(item())
        outputs = self.argument()
        self.expect("}")
        placement = self.read_placement()
        if self.peek().kind != "end":
            fail(f"{self.peek().text!r} after the end of the program", self.peek().line)
        missing = sorted(set(constants) - self.given_constants.keys())
        if missing:
            fail(f"the constant {missing[0]} was not given", self.peek().line)
        tensors = MappingProxyType({n: self.given_constants[n] for n in constants})
        return MappingProxyType(self.buffers), inputs, tuple(items), outputs, self.facts, placement, tensors

    def read_facts(self) -> None:
        symbols: dict[str, str] = {}
        ranges: dict[str, tuple[int | None, int | None]] = {}
        hints: dict[str, int] = {}
        while self.accept("symbol"):
            name = self.kind("name")
            if self.accept("in"):
                self.expect("[")
                low = self._range_end()
                self.expect(",")
                ranges[name] = (low, self._range_end())
                self.expect("]")
            if self.accept("from"):
                symbols[name] = self.string()
            if self.accept("hint"):
                hints[name] = self.integer()
        facts = []
        while self.accept("fact"):
            relation = self.string()
            where = self.origins()
            facts.append(SizeFact(relation, where[0] if where else None))
        self.facts = SizeFacts(symbols, ranges, tuple(facts), hints)

    def _range_end(self) -> int | None:
        if self.tokens[self.at].text == "inf" or (
            self.tokens[self.at].text == "-" and self.tokens[self.at + 1].text == "inf"
        ):
            self.accept("-")
            self.take()
            return None
        return self.integer()

    def read_head(self) -> tuple[tuple[str, ...], list[str]]:
        self.expect("graph")
        self.expect("(")
        inputs: list[str] = []
        constants: list[str] = []
        while not self.accept(")"):
            is_constant = self.accept("constant")
            if self.peek().kind == "buffer":
                name = self.typed_buffer()
                (constants if is_constant else inputs).append(name)
            else:
                inputs.append(self.kind("name"))
            self.accept(",")
        self.expect("{")
        return tuple(inputs), constants

    def read_placement(self) -> Placement | None:
        if not self.accept("arena"):
            return None
        n_bytes = self.integer()
        self.expect("bytes")
        self.expect(",")
        self.expect("at")
        self.expect("least")
        bound = self.integer()
        offsets: dict[str, int] = {}
        while self.accept(","):
            name = self.kind("buffer")[1:]
            self.expect("at")
            offsets[name] = self.integer()
        return Placement(n_bytes, MappingProxyType(offsets), bound)

    # ---- types

    def typed_buffer(self) -> str:
        name = self.kind("buffer")[1:]
        self.expect(":")
        dtype, shape, strides, _, device = self._type()
        self.buffers[name] = Buffer(shape, strides, dtype, device)
        return name

    def _type(self) -> tuple[str, tuple[IndexExpr, ...], tuple[IndexExpr, ...], IndexExpr, str]:
        dtype = self.kind("name")
        shape = self.exprs("[", "]")
        strides = self.exprs("(", ")") if self.accept("@") else row_major(shape)
        offset = ZERO
        if self.accept("+"):
            self.expect("(")
            offset = self.expr()
            self.expect(")")
        return dtype, shape, strides, offset, self.string() if self.accept("on") else "cpu"

    def exprs(self, start: str, end: str) -> tuple[IndexExpr, ...]:
        self.expect(start)
        exprs: list[IndexExpr] = []
        while not self.accept(end):
            exprs.append(self.expr())
            self.accept(",")
        return tuple(exprs)

    # ---- index expressions

    def expr(self) -> IndexExpr:
        """sum := product (+ product)*"""
        total = self._product()
        while self.peek().text == "+":
            self.take()
            total = total + self._product()
        return total

    def _product(self) -> IndexExpr:
        product = self._factor()
        while self.peek().text == "*":
            self.take()
            product = product * self._factor()
        return product

    def _factor(self) -> IndexExpr:
        token = self.peek()
        if token.kind == "number" or token.text == "-":
            return lift(self.integer())
        if token.kind == "name":
            self.take()
            return lift(self.axes[token.text]) if token.text in self.axes else symbol(token.text, self.facts)
        self.expect("(")
        value = self.expr()
        operation = self.peek().text
        if operation in ("//", "%"):
            self.take()
            divisor = self._factor()
            value = value // divisor if operation == "//" else value % divisor
        self.expect(")")
        return value

    # ---- items

    def _item(self) -> Item:
        if self.accept("kernel"):
            return self._kernel()
        outs = self.outs()
        self.expect("=")
        return self.extern(outs) if self.accept("extern") else self._nest(outs[0])

    def _call_of(self) -> KernelCall | Extern:
        outs = self.outs()
        self.expect("=")
        if self.accept("extern"):
            return self.extern(outs)
        self.expect("kernel")
        self.expect("(")
        operands: list[str] = []
        while not self.accept(")"):
            operands.append(self.kind("buffer")[1:])
            self.accept(",")
        missing = [name for name in operands if name not in self.buffers]
        if missing:
            fail(f"a kernel reads %{missing[0]}, which is not defined", self.peek().line)
        return KernelCall(outs, tuple(operands), self.origins())

    def outs(self) -> tuple[str, ...]:
        outs: list[str] = []
        while self.peek().text != "=":
            if self.accept("_"):
                outs.append("")
            else:
                outs.append(self.typed_buffer() if self.peek().kind == "buffer" else self.kind("name"))
            self.accept(",")
        return tuple(outs)

    def _kernel(self) -> Kernel:
        self.expect("[")
        rows = self._axes("]")
        self.expect("]")
        self.expect("{")
        steps, local = [], set()
        while not self.accept("}"):
            is_local = self.accept("local")
            name = self.typed_buffer()
            self.expect("=")
            steps.append(self._nest(name))
            if is_local:
                local.add(name)
        return Kernel(rows, tuple(steps), frozenset(local))

    def _axes(self, *ends: str) -> tuple[Atom, ...]:
        axes: list[Atom] = []
        while self.peek().text not in ends:
            name = self.kind("name")
            self.expect(":")
            axes.append(axis(name, self.expr()))
            self.accept(",")
        return tuple(axes)

    def _nest(self, out: str) -> Nest:
        kind = self.kind("name")
        self.axes, self.values = {}, {}
        self.expect("[")
        axes = self._axes("]", ";")
        red = self._axes("]") if self.accept(";") else ()
        self.expect("]")
        self.axes = {a.key: a for a in (*axes, *red)}
        if not self.accept("{"):
            body = self.value()
            origins = self.origins()
        else:
            origins = self.origins()
            body = self.block()
        self.axes, self.values = {}, {}
        return Nest(out, axes, red, kind, body, self.buffers[out].dtype, origins)

    def block(self) -> Val:
        while self.tokens[self.at + 1].text == "=":
            name = self.kind("name")
            self.expect("=")
            self.values[name] = self.value()
        body = self.value()
        self.expect("}")
        return body

    # ---- values

    def value(self) -> Val:
        """A value. Nested calls are kept on a stack of their own: depth is not limited."""
        stack: list[tuple[str, list[Any], int]] = []
        while True:
            token = self.peek()
            name = self.kind("name")
            done: Val | None
            if name in self.values and self.tokens[self.at].text != "(":
                done = self.values[name]
            else:
                self.expect("(")
                done = self._leaf(name, token.line)
                if done is None:
                    stack.append((name, [], token.line))
                    continue
            while stack:
                op, args, line = stack[-1]
                args.append(done)
                if op == "gather":
                    self.expect("]")
                if self._more_operands(op, args, line):
                    break
                stack.pop()
                done = self._call(op, args, line)
            else:
                return done

    def _leaf(self, name: str, line: int) -> Val | None:
        """A value without operands, or None when the operands of `name` come next."""
        if name in _SHORT_DTYPES:
            number = self._number()
            self.expect(")")
            return val("const", number, dtype=name)
        if name == "index":
            expr = self.expr()
            dtype = self.kind("name") if self.accept(",") else "i64"
            self.expect(")")
            return val("index", expr, dtype=dtype)
        if name in ("load", "gather"):
            return self._load(name, line)
        if name not in SCALAR_OPS and name != "scatter" and name not in OPERANDS:
            fail(f"no scalar op is called {name!r}", line)
        return None

    def _load(self, op: str, line: int) -> Val:
        buffer = self.kind("buffer")[1:]
        if buffer not in self.buffers:
            fail(f"{op} of %{buffer}, which is not defined", line)
        entries: list[IndexExpr | Val] = []
        while not self.accept(")"):
            self.expect(",")
            if self.accept("["):
                entries.append(self.value())
                self.expect("]")
            else:
                entries.append(self.expr())
        return make_load(buffer, tuple(entries), self.buffers[buffer].dtype)

    def _more_operands(self, op: str, args: list[Any], line: int) -> bool:
        """After an operand: whether another value follows; the call is closed otherwise."""
        if op == "cast":
            self.expect(",")
            args.append(self.kind("name"))
        elif self.accept(","):
            return True
        self.expect(")")
        return False

    def _call(self, op: str, args: list[Any], line: int) -> Val:
        if op == "cast":
            return val("cast", args[0], dtype=args[1])
        if op == "scatter" and len(args) > 1:
            return val("scatter", *args, dtype=args[1].dtype)
        if op in OPERANDS:
            if len(args) != OPERANDS[op]:
                fail(f"{op} takes {OPERANDS[op]} operands, not {len(args)}", line)
            return val(op, *args, dtype="f32")
        row = SCALAR_OPS.get(op)
        if row is None:
            fail(f"a scatter takes a value and places, not {len(args)} operands", line)
        if len(args) != len(row.operands):
            fail(f"{op} takes {len(row.operands)} operands, not {len(args)}", line)
        dtype = "b8" if row.rule is Rule.PREDICATE else args[-1].dtype
        return val(op, *args, dtype=dtype)

    def _number(self) -> bool | int | float:
        if self.accept("True"):
            return True
        if self.accept("False"):
            return False
        negative = self.accept("-")
        text = self.kind("number")
        number: int | float = int(text) if text.isdigit() else math.nan if text == "nan" else float(text)
        return -number if negative else number

    # ---- extern calls

    def extern(self, outs: tuple[str, ...]) -> Extern:
        token = self.peek()
        name = self.kind("name")
        target = self._higher_order(name, outs) if self.accept("[") else _overload(name, token.line)
        self.expect("(")
        args: list[Any] = []
        kwargs: list[tuple[str, Any]] = []
        while not self.accept(")"):
            if self.peek().kind == "name" and self.tokens[self.at + 1].text == "=":
                key = self.kind("name")
                self.expect("=")
                kwargs.append((key, self.argument()))
            else:
                args.append(self.argument())
            self.accept(",")
        return Extern(outs, target, tuple(args), tuple(kwargs), self.origins())

    def _higher_order(self, name: str, outs: tuple[str, ...]) -> HigherOrderOp:
        texts, options = list[str](), dict[str, int]()
        while not self.accept("]"):
            if self.peek().kind == "graph":
                texts.append(self.take().text)
            else:
                key = self.kind("name")
                self.expect("=")
                options[key] = self.integer()
        return read_higher_order(name, texts, options, outs, self.given_constants, self.places)

    def argument(self) -> Any:
        token = self.peek()
        if token.kind == "buffer":
            self.take()
            name = token.text[1:]
            if name not in self.buffers:
                fail(f"%{name} is not defined", token.line)
            buffer = self.buffers[name]
            return TensorRef(name, buffer.shape, buffer.strides, ZERO)
        if token.kind == "string":
            return self.string()
        if self.accept("`"):
            return self._size_or_condition()
        if self.accept("("):
            items: list[Any] = []
            while not self.accept(")"):
                items.append(self.argument())
                self.accept(",")
            return tuple(items)
        return self._word() if token.kind == "name" else self._number()

    def _size_or_condition(self) -> IndexExpr | Condition:
        """The rest of a size expression, or of a comparison, whose symbols are any integers."""
        start = self.at
        expr = self.expr()
        if self.accept("`"):
            return expr
        facts, self.facts, self.at = self.facts, SizeFacts(), start
        left, op = self.expr(), self.take().text
        condition = Condition(op, left, self.expr())
        self.facts = facts
        self.expect("`")
        return condition

    def _word(self) -> Any:
        token = self.peek()
        if token.text in ("True", "False"):
            return self._number()
        self.take()
        if token.text == "None":
            return None
        if token.text in _SHORT_DTYPES:
            return dtype_from_name(token.text)
        if token.text in ("view", "device", "complex"):
            self.expect("(")
            value = getattr(self, f"_{token.text}")()
            self.expect(")")
            return value
        thing = getattr(torch, token.text.removeprefix("torch."), None)
        if not isinstance(thing, (torch.dtype, torch.layout, torch.memory_format)):
            fail(f"{token.text!r} is no constant", token.line)
        return thing

    def _view(self) -> TensorRef:
        name = self.kind("buffer")[1:]
        self.expect(",")
        _, shape, strides, offset, _ = self._type()
        return TensorRef(name, shape, strides, offset)

    def _device(self) -> torch.device:
        return torch.device(self.string())

    def _complex(self) -> complex:
        real = self._number()
        self.expect(",")
        return complex(real, self._number())


def _overload(name: str, line: int) -> Any:
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    overloads = getattr(getattr(torch.ops, namespace), packet, None) if packet else None
    if overloads is None or overload not in overloads.overloads():
        fail(f"no operator overload is called {name!r}", line)
    return getattr(overloads, overload)
