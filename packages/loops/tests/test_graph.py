"""The GraphModule view: prints, runs, deep-copies; edits to it are edits to the program."""

import copy
import pickle

import pytest
import torch
import torch.fx as fx

import intarsia_loops
from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops import kernels, loops
from intarsia_loops.targets import KernelOp, NestOp

TWO_LAYERS = """// dialect: loops 2
graph(%x: f32[4, 6], %w: f32[6]) {
  # model.py:1 in forward
  %a: f32[4, 6] = map[i0: 4, i1: 6] mul(load(%x, i0, i1), load(%w, i1))  #1 mul
  # model.py:2 in forward
  %s: f32[4] = sum[i0: 4; r0: 6] load(%a, i0, r0)  #2
  # model.py:3 in forward; a.py:1 in g
  %b: f32[4, 6] = map[i0: 4, i1: 6] mul(load(%a, i0, i1), load(%w, i1))  #3; #2:1
  %t: f32[4] = sum[i0: 4; r0: 6] load(%b, i0, r0)
  %_: f32[4], %u: i64[4] = extern aten.sort.default(%t)
  return (view(%b, f32[6, 4]@(1, 6)), %s, %u, 3)
}
origins
  1 model.py
    forward: 1, 2, 3
  2 a.py
    g: 1
"""


@pytest.fixture
def gm() -> fx.GraphModule:
    return loops.parse_ir(TWO_LAYERS.replace("%_: f32[4]", "_"))


def test_it_prints_runs_and_lints(gm: fx.GraphModule) -> None:
    gm.graph.lint()
    assert "intarsia_loops_nests_sum" in gm.code
    x, w = torch.randn(4, 6), torch.randn(6)
    b = x * w * w
    for made in (gm(x, w), copy.deepcopy(gm)(x, w), loops.interpret(gm, x, w)):
        torch.testing.assert_close(made[0], b.t())
        assert made[0].stride() == (1, 6) and made[3] == 3
        torch.testing.assert_close(made[1], (x * w).sum(1))
        assert torch.equal(made[2], b.sum(1).sort().indices)


def test_equal_nests_are_equal_targets(gm: fx.GraphModule) -> None:
    targets = [n.target for n in gm.graph.nodes if isinstance(n.target, NestOp)]
    assert len(targets) == 4 and len(set(targets)) == 2
    assert targets[0] == targets[2] and targets[0] != targets[1]
    assert len(gm.graph.find_nodes(op="call_function", target=targets[0])) == 2


def test_equal_nests_over_other_layouts_are_not() -> None:
    other = loops.parse_ir(TWO_LAYERS.replace("%_: f32[4]", "_").replace("%x: f32[4, 6]", "%x: f32[4, 6]@(1, 4)"))
    first, third = (n.target for n in other.graph.nodes if n.name in ("a", "b"))
    assert first != third


@pytest.mark.parametrize(
    "line",
    [
        "%y{n}: f32[4, 6] = map[i0: 4, i1: 6] mul(load(%x, i0, i1), f32({n}.0))",
        "%y{n}: f32[4] = map[i0: 4] load(%x, i0, {n})",
        "%y{n}: f32[{n}] = sum[i0: {n}; r0: 6] load(%x, i0, r0)",
    ],
)
def test_other_work_has_other_hashes(line: str) -> None:
    """FX compares targets of one hash: a thousand that differ in a number are half a million comparisons."""
    text = "".join("  " + line.format(n=n) + "\n" for n in range(2, 6))
    gm = loops.parse_ir(f"// dialect: loops 2\ngraph(%x: f32[6, 6]) {{\n{text}  return (%y2, %y3, %y4, %y5)\n}}\n")
    targets = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    assert len(targets) == len({hash(t) for t in targets}) == 4


def test_nodes_carry_origins(gm: fx.GraphModule) -> None:
    origins = {n.name: meta.origins(n) for n in gm.graph.nodes}
    assert [str(o) for o in origins["b"]] == ["model.py:3 in forward", "a.py:1 in g"]
    assert origins["a"][0].op == "mul" and origins["t"] == ()


def test_edits_to_the_graph_are_edits_to_the_program(gm: fx.GraphModule) -> None:
    """A researcher's own pass: a node is rewired, and a dead one is erased."""
    nodes = {n.name: n for n in gm.graph.nodes}
    nodes["t"].replace_input_with(nodes["b"], nodes["a"])
    nodes["s"].replace_all_uses_with(nodes["t"])
    gm.graph.erase_node(nodes["s"])
    gm.recompile()
    program = intarsia_loops.from_fx(gm)
    assert [sorted(i.reads()) for i in program.items] == [["w", "x"], ["a", "w"], ["a"], ["t"]]
    loops.verify(gm)
    x, w = torch.randn(4, 6), torch.randn(6)
    torch.testing.assert_close(loops.interpret(gm, x, w)[1], gm(x, w)[1])


def test_a_copied_node_gets_a_buffer_of_its_own(gm: fx.GraphModule) -> None:
    node = next(n for n in gm.graph.nodes if n.name == "a")
    with gm.graph.inserting_after(node):
        twin = gm.graph.node_copy(node)
    node.replace_all_uses_with(twin, delete_user_cb=lambda user: user.name == "b")
    program = intarsia_loops.from_fx(gm)
    assert len({i.out for i in program.items[:4]}) == 4
    loops.verify(gm)


def test_kernels_with_several_results() -> None:
    gm = kernels.parse_ir("""// dialect: kernels 2
graph(%x: f32[4, 6]) {
  kernel[i0: 4] {
    local %m: f32[4] = max[i0: 4; r0: 6] load(%x, i0, r0)
    %a: f32[4, 6] = map[i0: 4, i1: 6] sub(load(%x, i0, i1), load(%m, i0))
    %s: f32[4] = sum[i0: 4; r0: 6] load(%a, i0, r0)
  }
  kernel[i0: 4] {
    %r: f32[4] = map[i0: 4] neg(load(%s, i0))
  }
  return (%a, %r)
}
arena 64 bytes, at least 64, %s at 0
""")
    kernels.verify(gm)
    x = torch.randn(4, 6)
    a = x - x.amax(1, keepdim=True)
    for made in (gm(x), kernels.interpret(gm, x)):
        torch.testing.assert_close(made, (a, -a.sum(1)))
    assert [len(n.target.outs) for n in gm.graph.nodes if isinstance(n.target, KernelOp)] == [2, 1]
    assert kernels.print_ir(kernels.parse_ir(kernels.print_ir(gm))) == kernels.print_ir(gm)


def test_a_plan_that_reuses_memory_too_early_gives_wrong_results() -> None:
    text = """// dialect: kernels 2
graph(%x: f32[16]) {
  kernel[i0: 16] {
    %a: f32[16] = map[i0: 16] neg(load(%x, i0))
  }
  kernel[i0: 16] {
    %b: f32[16] = map[i0: 16] exp(load(%x, i0))
  }
  kernel[i0: 16] {
    %c: f32[16] = map[i0: 16] add(load(%a, i0), load(%b, i0))
  }
  return (%c,)
}
arena 128 bytes, at least 128, %a at 0, %b at {place}
"""
    x = torch.rand(16) + 1
    good, bad = (kernels.parse_ir(text.replace("{place}", str(place))) for place in (64, 0))
    torch.testing.assert_close(kernels.interpret(good, x)[0], x.exp() - x)
    assert not torch.allclose(kernels.interpret(bad, x)[0], x.exp() - x)


def test_symbolic_sizes_come_from_the_inputs() -> None:
    gm = loops.parse_ir("""// dialect: loops 2
symbol n in [2, inf] from 'x.size(0)' hint 5
graph(%x: f32[n, 3]) {
  %s: f32[n] = sum[i0: n; r0: 3] load(%x, i0, r0)
  %y: f32[n] = map[i0: n] add(load(%s, n + -1 + -1*i0), cast(index(n), f32))
  return (%y, `n`)
}
""")
    loops.verify(gm)
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        for made in (gm(x), loops.interpret(gm, x)):
            torch.testing.assert_close(made, (x.sum(1).flip(0) + rows, rows))
    assert loops.print_ir(loops.parse_ir(loops.print_ir(gm))) == loops.print_ir(gm)


def test_sizes_can_be_inputs() -> None:
    gm = loops.parse_ir("// dialect: loops 2\ngraph(n) {\n  %y: i64[n] = map[i0: n] index(i0)\n  return (%y,)\n}\n")
    assert gm(4)[0].tolist() == loops.interpret(gm, 4)[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="takes 1 inputs"):
        loops.interpret(gm)


def test_constants_travel_with_the_program() -> None:
    text = """// dialect: loops 2
graph(%x: f32[3], constant %c: f32[]) {
  %y: f32[3] = map[i0: 3] add(load(%x, i0), load(%c))
  return (%y,)
}
"""
    with pytest.raises(InvalidArgumentError, match="constant c"):
        loops.parse_ir(text)
    gm = loops.parse_ir(text, constants={"c": torch.tensor(2.5)})
    assert loops.print_ir(gm) == text
    assert gm(torch.zeros(3))[0].tolist() == loops.interpret(copy.deepcopy(gm), torch.zeros(3))[0].tolist() == [2.5] * 3


def test_values_pickle_to_themselves() -> None:
    from intarsia_loops.index import axis, lift
    from intarsia_loops.program import load, val

    v = val("exp", load("x", (lift(axis("i0", 4)) // 2,), "f32"), dtype="f32")
    assert pickle.loads(pickle.dumps(v)) is v and copy.deepcopy(v) is v


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("// dialect: kernels 2\n", "expected the header"),
        ("// dialect: loops 2\ngraph() {\n  return (%x,)\n}\n", "line 3 .*%x is not defined"),
        ("// dialect: loops 2\ngraph() {\n  %y: f32[3] = map[i0: 3] foo(f32(1.0))\n  return ()\n}\n", "line 3 .*'foo'"),
        ("// dialect: loops 2\ngraph() {\n  %y: f32[3] = map[i0: 3] add(f32(1.0))\n  return ()\n}\n", "2 operands"),
        ("// dialect: loops 2\ngraph() {\n  = extern aten.nope.default()\n  return ()\n}\n", "overload"),
        ("// dialect: loops 2\ngraph() {\n  return ()\n}\nmore", "after the end"),
        ("// dialect: loops 2\ngraph() { ~", "unexpected character"),
    ],
)
def test_text_that_is_no_program(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        loops.parse_ir(text)


def test_other_graphs_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no item of a loop program"):
        intarsia_loops.from_fx(fx.symbolic_trace(lambda x: x + 1))
    with pytest.raises(InvalidArgumentError, match="nothing tells"):
        intarsia_loops.from_fx(fx.symbolic_trace(lambda x: (x,)))


def test_a_module_built_anew_from_the_nodes_is_a_view(gm: fx.GraphModule) -> None:
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    rebuilt = fx.GraphModule(torch.nn.Module(), graph)
    assert intarsia_loops.from_fx(rebuilt).items == intarsia_loops.from_fx(gm).items
    loops.verify(rebuilt)


def test_code_is_generated_when_it_is_needed(gm: fx.GraphModule) -> None:
    assert "forward" in gm.code and "GraphModule" in str(gm)
    assert "forward" in copy.deepcopy(loops.parse_ir(loops.print_ir(gm))).code
    with pytest.raises(AttributeError):
        loops.parse_ir(loops.print_ir(gm)).no_such_attribute
