"""Text that round-trips: every kind of constant, value and origin; and text that is refused, with its line."""

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._subclasses import FakeTensorMode

from intarsia_ir import InvalidArgumentError, Origin, SizeFacts, UnsupportedError, aten, meta
from intarsia_ir import torch as torch_dialect

CONSTANTS = [
    None, True, False, 0, -7, 10**20, 0.0, -0.0, 1.5, 1e-30, 1e16, float("inf"), float("-inf"), float("nan"),
    1j, complex(-0.0, float("inf")), "", "a'b\"c\n#//%x", "`$0`", torch.float32, torch.bfloat16, torch.quint8,
    torch.device("cpu"), torch.device("cuda", 1), torch.strided, torch.channels_last, torch.preserve_format,
    (), (1,), (1, (2.0, None)), [], [1, [True]], {}, {"a": [1], "b": {"c": None}}, slice(None), slice(1, None, 2),
    slice(0, 3, None), range(1, 9, 3), Ellipsis, torch.Size([2, 3]), (Ellipsis, None, slice(None, -1)),
]  # fmt: skip


def graph_with(value: object) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.create_node("call_function", torch.neg, (x, value), {"k": value}),))  # type: ignore[arg-type]
    return fx.GraphModule(torch.nn.Module(), graph)


def same(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return isinstance(a, tuple) == isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) and (a is b or type(a) is type(b) or isinstance(a, (dict, list)))


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_constants_come_back(value: object) -> None:
    gm = graph_with(value)
    back = torch_dialect.parse_ir(torch_dialect.print_ir(gm))
    node = next(iter(back.graph.find_nodes(op="call_function", target=torch.neg)))
    assert same(node.args[1], value) and same(node.kwargs["k"], value)


FUNCTIONS = [torch.relu, operator.add, int, torch.nn.functional.gelu, torch.linalg.inv, math.ceil]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_come_back(function: Callable[..., Any]) -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(function, (graph.placeholder("x"), 2)),))
    back = torch_dialect.parse_ir(torch_dialect.print_ir(fx.GraphModule(torch.nn.Module(), graph)))
    assert list(back.graph.nodes)[1].target is function


def test_objects_without_text_come_from_constants() -> None:
    function, graph = lambda x: x, fx.Graph()
    graph.output((graph.call_function(function, (graph.call_function(function, (graph.placeholder("x"),)),)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    text = torch_dialect.print_ir(gm)
    assert "%1 = $0(%0) !opaque" in text
    back = torch_dialect.parse_ir(text, constants=torch_dialect.constants_of(gm))
    assert [node.target for node in back.graph.nodes][1:3] == [function, function]
    with pytest.raises(InvalidArgumentError, match=r"line 3 .*\$0(.|\n)*constants_of"):
        torch_dialect.parse_ir(text)


def user_function(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_functions_of_the_user_are_named_and_given_back() -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(user_function, (graph.placeholder("x"),)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    text = torch_dialect.print_ir(gm)
    assert f"= {__name__}.user_function(%x) !opaque" in text
    back = torch_dialect.parse_ir(text, constants=torch_dialect.constants_of(gm))
    assert torch_dialect.interpret(back, torch.ones(1)) == (torch.ones(1) + 1,)


TYPES = [
    "f32[]", "f32[0]", "f32[2, 3]", "f32[2, 3]@(1, 2)", "f32[2, 2]@(4, 2)+3", "f32[3]@(0)", "bf16[1, 1, 1]", "b8[2]",
    "u16[2]", "c64[2]", "c64[2] conj", "c64[2] conj neg", "f32[2] grad", "f32[2] on 'cuda:1'", "f8e4m3fn[4]",
    "f32[2, 0, 3]", "f32[4]@(2)+1 grad", "()", "(f32[2],)",
    "(f32[2], [i64[3], f64[]])", "=3", "=None", "=True", "=f32", "='text'",
    "[]", "=Size([2])", "torch.bits8[2]",
]  # fmt: skip


@pytest.mark.parametrize("dialect", [aten, torch_dialect], ids=["aten", "torch"])
@pytest.mark.parametrize("value", TYPES)
def test_values_come_back(value: str, dialect: object) -> None:
    name = "aten" if dialect is aten else "torch"
    text = f"// dialect: {name} 2\ngraph(%x: {value}) {{\n  return (%x,)\n}}\n"
    assert dialect.print_ir(dialect.parse_ir(text)) == text  # type: ignore[attr-defined]


ORIGINS = [
    Origin("model.py", 3, "forward"),
    Origin("/a/b c/é.py", 12, "Net.forward.<locals>.<lambda>", "conv2d"),
    Origin("C:\\x;y#z.py", 1, "f", "a (b)"),
    Origin('it\'s "here".py', 99999, "g", ""),
    Origin("", 0, "", ""),
]


def test_origins_come_back() -> None:
    gm = graph_with(1)
    for node in gm.graph.nodes:
        meta.set_origins(node, ORIGINS)
    back = torch_dialect.parse_ir(torch_dialect.print_ir(gm))
    assert [meta.origins(node) for node in back.graph.nodes] == [tuple(ORIGINS)] * 3


def test_attributes_and_nested_graphs_come_back() -> None:
    text = """// dialect: torch 2
graph(%x: f32[2]) {
  %0: f32[2] = get_attr('block.weight')
  %1 = region 'block.body' graph(%a) {
    %0 = get_attr('bias')
    %1 = torch.add(%a, %0)
    return (%1,)
  }
  %2 = torch.mul(%x, %0)
  return (%2,)
}
"""
    weight, bias = torch.ones(2), torch.zeros(2)
    gm = torch_dialect.parse_ir(text, constants={"block.weight": weight, "block.body.bias": bias})
    assert torch_dialect.print_ir(gm) == text
    constants = torch_dialect.constants_of(gm)
    assert constants["block.weight"] is weight and constants["block.body.bias"] is bias
    assert torch_dialect.print_ir(torch_dialect.parse_ir(text, constants=constants)) == text


def test_effects_are_shown_and_not_read() -> None:
    text = "// dialect: aten 2\ngraph(%x) {\n  %0 = aten.neg.default(%x) !writes(self) !random\n  return ()\n}\n"
    assert "!" not in aten.print_ir(aten.parse_ir(text))


def test_symbols_and_history_in_the_header() -> None:
    gm = aten.parse_ir("// dialect: aten 2\ngraph(%x) { return (%x,) }")
    text = aten.print_ir(
        gm, facts=SizeFacts(symbols={"s0": "x.size(0)", "u0": "?"}, ranges={"s0": (2, 4096)}), made_by="f"
    )
    assert text.splitlines()[:2] == [
        "// dialect: aten 2          made by: f",
        "symbols: s0 in [2, 4096], u0 in [-inf, inf]",
    ]
    assert aten.print_ir(aten.parse_ir(text)) == aten.print_ir(gm)


def test_symbolic_sizes_are_made_by_the_caller() -> None:
    asked = []

    def symbols(text: str, kind: str) -> int:
        asked.append((text, kind))
        return {"s0": 4, "2*s0 + 1": 9}[text]

    text = "// dialect: aten 2\ngraph(%x: f32[s0, `2*s0 + 1`], %n: int`s0`) { return (%x, `s0`) }"
    gm = aten.parse_ir(text, symbols=symbols)
    assert asked == [("s0", "size"), ("2*s0 + 1", "size"), ("s0", "int"), ("s0", "int")]
    assert meta.value(next(iter(gm.graph.nodes))).shape == (4, 9)
    with pytest.raises(InvalidArgumentError, match="symbolic number s0"):
        aten.parse_ir(text)


def test_values_belong_to_the_given_mode() -> None:
    mode = FakeTensorMode()
    gm = aten.parse_ir("// dialect: aten 2\ngraph(%x: f32[2]) { return (%x,) }", fake_mode=mode)
    assert meta.value(next(iter(gm.graph.nodes))).fake_mode is mode


REFUSED = {
    "graph(%x) { return () }": "line 1 .*first line",
    "// dialect: aten 2\ngraph(%x) {\n  %0 = aten.nope.default(%x)\n  return ()\n}": "line 3 .*'aten.nope.default'",
    "// dialect: aten 2\ngraph(%x) {\n  %0 = torch.relu(%x)\n  return ()\n}": "line 3 .*'torch.relu'",
    "// dialect: aten 2\ngraph(%x) {\n  %0 = os.system('x')\n  return ()\n}": "line 3 .*'os.system'",
    "// dialect: aten 2\ngraph(%x) {\n  return (%y,)\n}": "line 3 .*%y is used before",
    "// dialect: aten 2\ngraph(%x, %x) { return () }": "%x is defined twice",
    "// dialect: aten 2\ngraph(%x: f33[2]) { return () }": "'f33' is no element type",
    "// dialect: aten 2\ngraph(%x) {\n\n  return (?)\n}": r"line 4 .*'\?'",
    "// dialect: aten 2\ngraph(%x) { return () } extra": "expected a end, found 'extra'",
    "// dialect: aten 2\ngraph(%x) { %0 = aten.neg.default(%x": "expected ',' or '\\)', found ''",
    "// dialect: aten 2\ngraph(%x) { %0 = get_attr('w') return () }": "'w'.*\n.*constants",
    "// dialect: aten 2\ngraph(%x) { %0 = 3(%x) return () }": "expected an op",
    "// dialect: aten 2\ngraph(%x %y) { return () }": "expected ','",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=REFUSED[text]):
        aten.parse_ir(text)


@pytest.mark.parametrize("header", ["// dialect: torch 2", "// dialect: aten 3", "// dialect: aten 0"])
def test_refused_other_dialects_and_versions(header: str) -> None:
    with pytest.raises(UnsupportedError, match="this reader takes aten 2 and older"):
        aten.parse_ir(header + "\ngraph() { return () }")


def test_refused_sparse_values() -> None:
    gm = graph_with(1)
    meta.set_value(next(iter(gm.graph.nodes)), torch.eye(2).to_sparse())
    with pytest.raises(UnsupportedError, match="sparse"):
        aten.print_ir(gm)
