"""Reading a graph from its text: the part that the torch and aten dialects share.

    text   = header ["symbols:" ...] graph [footer]
    graph  = "graph" "(" input, ... ")" "{" node ... "return" value "}"
    input  = "%name" [":" type]
    node   = "%n" [":" type] "=" (call | region) effects [comment]
    call   = target "(" value, ..., name "=" value, ... ")"
    target = name | name "[" graph ... name "=" number ... "]"
    region = "region" "'name'" graph

Nothing is imported and nothing is called while reading: functions outside torch, operator, math and builtins,
attributes, and objects without a text come from the mapping `constants`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses import FakeTensor, FakeTensorMode

from intarsia_ir import meta
from intarsia_ir._names import object_named
from intarsia_ir._print import Dialect
from intarsia_ir._tokens import Tokens, fail, tokenize, unquoted
from intarsia_ir.device_guard import keep_device_guard
from intarsia_ir.dtypes import DTYPE_NAMES, dtype_from_name
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.fakes import fake_at
from intarsia_ir.higher_order import HIGHER_ORDER, HigherOrderOp
from intarsia_ir.origin_text import Places, origins_of_comment, split_origins
from intarsia_ir.records import Origin

__all__ = ["Reader", "parse_graph"]

_HEADER = re.compile(r"\s*// dialect: (?P<name>\S+) (?P<schema>\d+)(?: +made by: .*)?\n")
_SYMBOLS = re.compile(r"symbols:[^\n]*\n")
_DTYPES = frozenset(DTYPE_NAMES.values())


def parse_graph(
    text: str,
    dialect: Dialect,
    *,
    constants: Mapping[str, Any],
    symbols: Callable[[str, str], Any] | None,
    fake_mode: FakeTensorMode | None,
    places: Places | None = None,
) -> fx.GraphModule:
    """Return the graph of `text`; arguments as in each dialect's `parse_ir`, and `places`, where it has no footer."""
    if places is None:
        text, places = split_origins(text)
    header = _HEADER.match(text)
    if header is None:
        fail("the first line must be `// dialect: <name> <version>`", 1)
    if header["name"] != dialect.name or not 1 <= int(header["schema"]) <= dialect.schema:
        given, older = f"{header['name']} {header['schema']}", " and older" * (dialect.schema > 1)
        takes = f"this reader takes {dialect.name} {dialect.schema}{older}"
        raise UnsupportedError(f"the text is dialect {given}; {takes}", code="ir.schema")
    # blank out what was read, so that line numbers stay those of the text
    body = "\n" * text[: header.end()].count("\n") + text[header.end() :]
    body = _SYMBOLS.sub("\n", body, count=1)
    tokens = Tokens(tokenize(body))
    keep_device_guard()
    mode = fake_mode or FakeTensorMode()
    reader = Reader(tokens, dialect, constants, symbols, mode, places)
    with mode.shape_env.suppress_guards() if mode.shape_env is not None else contextlib.nullcontext():
        gm = reader.graph("")
    tokens.expect_kind("end")
    return gm


@dataclass(slots=True)
class Reader:
    """Reads graphs and constants from tokens; functions, attributes and opaque objects come from `constants`."""

    tokens: Tokens
    dialect: Dialect
    constants: Mapping[str, Any]
    symbols: Callable[[str, str], Any] | None
    fake_mode: FakeTensorMode | None  # made for the first tensor: it takes long, and records have none
    places: Places = field(default_factory=dict)
    nodes: dict[str, fx.Node] = field(default_factory=dict)
    attributes: dict[fx.Node, Any] = field(default_factory=dict)
    defined: str = ""

    def mode(self) -> FakeTensorMode:
        """Return the mode that tensors are made in."""
        if self.fake_mode is None:
            self.fake_mode = FakeTensorMode()
        return self.fake_mode

    # ---- graphs ----------------------------------------------------------------------------------------------

    def graph(self, prefix: str) -> fx.GraphModule:
        """Read `graph(...) {...}`; attributes are looked up in the constants under `prefix`."""
        graph, attributes = fx.Graph(), {}
        self.tokens.expect("graph")
        self._inputs(graph)
        self.tokens.expect("{")
        while not self.tokens.accept("return"):
            node = self._node(graph, prefix)
            if node in self.attributes:
                attributes[str(node.target)] = self.attributes[node]
        node = graph.output(self.value())
        self.note_origins(node)
        self.tokens.expect("}")
        return fx.GraphModule(_holder(attributes), graph)

    def _inputs(self, graph: fx.Graph) -> None:
        self.tokens.expect("(")
        while not self.tokens.accept(")"):
            name = self.tokens.expect_kind("node").text[1:]
            node = graph.placeholder(name)
            if self.tokens.accept(":"):
                meta.set_value(node, self.type())
            self._define(name, node)
            self._attributes(node)
            if not self.tokens.accept(",") and self.tokens.peek().text != ")":
                fail("expected ',' or ')' after an input", self.tokens.line)
            self.note_origins(node)

    def _define(self, name: str, node: fx.Node) -> None:
        if name in self.nodes:
            fail(f"%{name} is defined twice", self.tokens.line)
        self.nodes[name] = node

    def _node(self, graph: fx.Graph, prefix: str) -> fx.Node:
        name = self.tokens.expect_kind("node").text[1:]
        has_value = self.tokens.accept(":")
        val = self.type() if has_value else None
        self.tokens.expect("=")
        reader = self._region if self.tokens.accept("region") else self._call
        self.defined = name
        node = reader(graph, prefix, None if name.isdigit() else name)
        self._attributes(node)
        if has_value:
            meta.set_value(node, val)
        self._define(name, node)
        while self.tokens.peek().kind == "effect":
            self.tokens.take()
        self.note_origins(node)
        return node

    def _attributes(self, node: fx.Node) -> None:
        if not self.tokens.accept("{"):
            return
        while not self.tokens.accept("}"):
            word = self.tokens.expect_kind("name").text
            if word == "kept":
                meta.set_kept(node)
            elif word == "region":
                self.tokens.expect("=")
                meta.set_region(node, *self.value())
            else:
                meta.set_phase(node, word)
            self._separator("}")

    def _region(self, graph: fx.Graph, prefix: str, name: str | None) -> fx.Node:
        path = unquoted(self.tokens.expect_kind("string").text)
        outer, self.nodes = self.nodes, {}
        inner = self.graph(f"{prefix}{path}.")
        self.nodes = outer
        return self._get_attr(graph, path, inner, name)

    def _call(self, graph: fx.Graph, prefix: str, name: str | None) -> fx.Node:
        if self.tokens.accept("."):
            method = self.tokens.expect_kind("name").text
            return graph.create_node("call_method", method, *self.arguments(), name=name)
        token = self.tokens.take()
        if token.kind not in ("name", "opaque"):
            fail(f"expected an op, found {token.text!r}", token.line)
        if token.text in HIGHER_ORDER and self.tokens.accept("["):
            target = self._higher_order(token.text, f"{prefix}{self.defined}.")
            return graph.create_node("call_function", target, *self.arguments(), name=name)
        args, kwargs = self.arguments()
        if token.text == "get_attr":
            return self._get_attr(graph, args[0], self._constant(prefix + args[0], token.line), name)
        if token.text == "call_module":
            node = graph.create_node("call_module", args[0], args[1:], kwargs, name)
            self.attributes[node] = self._constant(prefix + args[0], token.line)
            return node
        return graph.create_node("call_function", self._target(token.text, token.line), args, kwargs, name)

    def _higher_order(self, op: str, prefix: str) -> HigherOrderOp:
        """Read the graphs and options of a higher-order op; `prefix` is that of the constants of its graphs."""
        programs: list[fx.GraphModule] = []
        options: dict[str, int] = {}
        outer, self.nodes = self.nodes, {}
        while not self.tokens.accept("]"):
            if self.tokens.peek().text == "graph":
                self.nodes = {}
                programs.append(self.graph(f"{prefix}{len(programs)}."))
            else:
                key = self.tokens.expect_kind("name").text
                self.tokens.expect("=")
                options[key] = int(self.tokens.expect_kind("number").text)
        self.nodes = outer
        return HigherOrderOp(op, programs, options)

    def _get_attr(self, graph: fx.Graph, path: str, value: Any, name: str | None) -> fx.Node:
        node = graph.create_node("get_attr", path, name=name)
        self.attributes[node] = value
        return node

    def _target(self, name: str, line: int) -> Any:
        if name in self.constants:
            return self.constants[name]
        try:
            return self.dialect.target_named(name)
        except LookupError:
            return self._constant(name, line)

    def _constant(self, name: str, line: int) -> Any:
        if name not in self.constants:
            raise InvalidArgumentError(
                f"line {line} of the IR text refers to {name!r}, which is no op of dialect {self.dialect.name}",
                code="ir.parse",
                hints=(f"give it: parse_ir(text, constants={{{name!r}: ...}}); constants_of(gm) collects them",),
            )
        return self.constants[name]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = [], {}
        self.tokens.expect("(")
        while not self.tokens.accept(")"):
            token = self.tokens.peek()
            if token.kind == "name" and self._is_keyword():
                kwargs[token.text] = self.value()
            else:
                args.append(self.value())
            self._separator(")")
        return tuple(args), kwargs

    def _is_keyword(self) -> bool:
        """Take `name =` when that's what comes next."""
        if self.tokens.peek_second().text != "=":
            return False
        self.tokens.take()
        self.tokens.take()
        return True

    def _separator(self, closing: str) -> None:
        if not self.tokens.accept(",") and self.tokens.peek().text != closing:
            fail(f"expected ',' or {closing!r}, found {self.tokens.peek().text!r}", self.tokens.line)

    def note_origins(self, node: fx.Node) -> None:
        origins = self.origins()
        if origins:
            meta.set_origins(node, origins)

    def origins(self) -> tuple[Origin, ...]:
        """Read the comment that ends a line."""
        comment = self.tokens.comment()
        return origins_of_comment(comment.text, self.places, comment.line) if comment is not None else ()

    # ---- constants -------------------------------------------------------------------------------------------

    def value(self) -> Any:
        """Read an argument: a node, a constant, or a nest of these."""
        token = self.tokens.take()
        match token.kind:
            case "node":
                if token.text[1:] not in self.nodes:
                    fail(f"{token.text} is used before it is defined", token.line)
                return self.nodes[token.text[1:]]
            case "number":
                return _number(token.text)
            case "string":
                return unquoted(token.text)
            case "symbolic":
                return self.quoted(token.text, token.line)
            case "opaque":
                return self._constant(token.text, token.line)
            case "name":
                return self._named(token.text, token.line)
        match token.text:
            case "[":
                return self._sequence("]")[0]
            case "(":
                items, trailing = self._sequence(")")
                return items[0] if len(items) == 1 and not trailing else tuple(items)
            case "{":
                return self._mapping()
            case "...":
                return Ellipsis
        return fail(f"expected a value, found {token.text or 'the end'!r}", token.line)

    def _named(self, name: str, line: int) -> Any:
        words = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
        if name in words:
            return words[name]
        if name in _DTYPES:
            return dtype_from_name(name)
        maker = self.made(name)
        if maker is not None and self.tokens.peek().text == "(":
            args, kwargs = self.arguments()
            return maker(*args, **kwargs)
        try:
            return object_named(name)
        except LookupError:
            return self._constant(name, line)

    def made(self, name: str) -> Callable[..., Any] | None:
        """Return what a call of `name` among constants makes its value; None when it makes none."""
        return _MAKERS.get(name)

    def _sequence(self, closing: str) -> tuple[list[Any], bool]:
        items, trailing = [], False
        while not self.tokens.accept(closing):
            items.append(self.value())
            trailing = self.tokens.peek().text == ","
            self._separator(closing)
        return items, trailing

    def _mapping(self) -> dict[Any, Any]:
        items = {}
        while not self.tokens.accept("}"):
            key = self.value()
            self.tokens.expect(":")
            items[key] = self.value()
            self._separator("}")
        return items

    def quoted(self, text: str, line: int) -> Any:
        """Return what an expression in backquotes stands for among constants."""
        return self._symbolic(text, "int", line)

    def _symbolic(self, text: str, kind: str, line: int) -> Any:
        if self.symbols is None:
            raise InvalidArgumentError(
                f"line {line} of the IR text has the symbolic number {text}",
                code="ir.parse",
                hints=("give `symbols`: a function from (expression, 'int' | 'float' | 'bool') to the number",),
            )
        return self.symbols(text.strip("`"), kind)

    # ---- types -----------------------------------------------------------------------------------------------

    def type(self) -> Any:
        """Read what a node produces, and make it: a fake tensor, a number, or a nest of these."""
        if self.tokens.accept("("):
            return tuple(self._types(")"))
        if self.tokens.accept("["):
            return self._types("]")
        if self.tokens.accept("="):
            return self.value()
        token = self.tokens.expect_kind("name")
        if token.text in ("int", "float", "bool"):
            symbolic = self.tokens.expect_kind("symbolic")
            return self._symbolic(symbolic.text, token.text, symbolic.line)
        return self._tensor(token.text, token.line)

    def _types(self, closing: str) -> list[Any]:
        items = []
        while not self.tokens.accept(closing):
            items.append(self.type())
            self._separator(closing)
        return items

    def _tensor(self, name: str, line: int) -> torch.Tensor:
        try:
            dtype = dtype_from_name(name.removeprefix("torch."))
        except KeyError:
            fail(f"{name!r} is no element type", line)
        self.tokens.expect("[")
        sizes = self._sizes("]")
        strides = _contiguous(sizes)
        if self.tokens.accept("@"):
            self.tokens.expect("(")
            strides = self._sizes(")")
        offset = self._size() if self.tokens.accept("+") else 0
        device = unquoted(self.tokens.expect_kind("string").text) if self.tokens.accept("on") else "cpu"
        return self._flags(_fake(self.mode(), sizes, strides, offset, dtype, device))

    def _sizes(self, closing: str) -> list[Any]:
        items = []
        while not self.tokens.accept(closing):
            items.append(self._size())
            self._separator(closing)
        return items

    def _size(self) -> Any:
        token = self.tokens.take()
        if token.kind == "number":
            return int(token.text)
        if token.kind in ("symbolic", "name"):
            return self._symbolic(token.text, "size", token.line)
        return fail(f"expected a size, found {token.text!r}", token.line)

    def _flags(self, value: torch.Tensor) -> torch.Tensor:
        with self.mode():
            if self.tokens.accept("grad"):
                value.requires_grad_()
            if self.tokens.accept("conj"):
                value = torch._conj(value)
            if self.tokens.accept("neg"):
                value = torch._neg_view(value)
        return value


_MAKERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "complex": complex,
        "slice": slice,
        "range": range,
        "device": torch.device,
        "Size": torch.Size,
        "record": lambda cls, **fields: cls(**fields),
    }
)


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _contiguous(sizes: list[Any]) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step = step * (max(size, 1) if type(size) is int else size)
    return strides


def _fake(
    mode: FakeTensorMode, sizes: list[Any], strides: list[Any], offset: Any, dtype: torch.dtype, device: str
) -> torch.Tensor:
    if any(type(number) is not int for number in (*sizes, *strides, offset)):
        if type(offset) is not int or offset != 0:
            return fake_at(mode, sizes, strides, offset, dtype, device)
        with mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    empty = any(type(size) is int and size == 0 for size in sizes)
    reach = 0 if empty else sum((size - 1) * stride for size, stride in zip(sizes, strides)) + 1
    storage = torch.empty((offset + reach,), dtype=dtype, device="meta")
    return FakeTensor(mode, storage.as_strided(sizes, strides, offset), torch.device(device))


def _holder(attributes: Mapping[str, Any]) -> torch.nn.Module:
    """Return a module that has every attribute, dotted paths included."""
    root = torch.nn.Module()
    for path, value in attributes.items():
        *parents, last = path.split(".")
        module = root
        for name in parents:
            if not hasattr(module, name):
                module.add_module(name, torch.nn.Module())
            module = getattr(module, name)
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            module.register_buffer(last, value)
        else:
            setattr(module, last, value)
    return root
