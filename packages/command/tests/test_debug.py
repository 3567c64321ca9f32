"""`intarsia debug`: each level's interpreter, step by step, with commands that come from a text."""

from __future__ import annotations

import io

import pytest
import torch

from intarsia_command import debug
from intarsia_command.bisecting import Case
from intarsia_command.debug_shell import summary
from intarsia_command.debugging import DEBUG_LEVELS, stepped
from intarsia_ir.errors import InvalidArgumentError


def softly(x, w):
    y = torch.relu(x @ w)
    return torch.softmax(y * 2, dim=-1)


LINE = softly.__code__.co_firstlineno + 1


def told(*commands, function=softly, level="loops", args=None, **more):
    """Return what the shell says, and whether all was equal to eager."""
    torch.manual_seed(0)
    out = io.StringIO()
    given = (torch.randn(2, 4), torch.randn(4, 4)) if args is None else args
    text = "".join(f"{command}\n" for command in commands)
    equal = debug(function, *given, level=level, stdin=io.StringIO(text), stdout=out, **more)
    return out.getvalue(), equal


FIRST = {
    "torch": "> %matmul: f32[2, 4] = operator.matmul(%x, %w)",
    "aten": "> %mm_default: f32[2, 4] = aten.mm.default(%x, %w)",
    "halves": "> %mm_default: f32[2, 4] = aten.mm.default(%x, %w)",
    "loops": "> %mm_default: f32[2, 4] = extern aten.mm.default(%x, %w)",
    "kernels": "> %mm_default: f32[2, 4] = extern aten.mm.default(%x, %w)",
    "tiles": "> %mm_default: f32[2, 4] = extern aten.mm.default(%x, %w)",
}


@pytest.mark.parametrize("level", DEBUG_LEVELS)
def test_each_level_is_stepped_through(level):
    product = "matmul" if level == "torch" else "mm_default"
    text, equal = told("list all", "step", f"print (x @ w - {product}).abs().max().item()", "where", level=level)
    assert equal and text.startswith(f"graph 1 of 1, {level}\n  x = float32[2, 4], ")
    assert FIRST[level] in text and "(intarsia) 0.0\n" in text
    assert f"test_debug.py:{LINE} in softly  y = torch.relu(x @ w)" in text
    assert text.endswith("the graph's end: equal to eager\n")


def test_breakpoints_are_names_lines_and_words():
    text, _ = told("b %relu_default", f"b test_debug.py:{LINE + 1}", "b _max", "c", "delete 2", "b", "c", "d", "b", "c")
    stops = [line.split(":")[0] for line in text.splitlines() if "> %" in line]
    assert [stop.rpartition("%")[2] for stop in stops] == ["relu_default", "_softmax_default_max"]
    assert "1 %relu_default\n2 _max\n" in text and "no breakpoint" in text


def test_a_kernel_shows_what_it_keeps_to_itself():
    text, _ = told("next 2", "values", level="kernels")
    assert "_softmax_default_max = float32[2], " in text and "_softmax_default_exp = float32[2, 4], " in text


def test_statements_of_a_launch_are_steps_and_items_are_not():
    inside, _ = told("s", "s", "s", "v", level="tiles")
    assert "launch" not in inside.split("(intarsia) ")[3] and "i0 = " in inside
    items, _ = told("n", "n", "p _softmax_default.sum().item()", level="tiles")
    assert "> launch kernel0" in items and "  mm_default = " not in items.partition("> launch")[2]
    assert items.count("(intarsia) >") == 2


def test_backward_graphs_are_stepped_through():
    args = (torch.randn(2, 4), torch.randn(4, 4, requires_grad=True))
    text, equal = told("b extern aten.mm", "c", "c", "c", args=args, train=True)
    assert equal and text.count(" = extern aten.mm.default(") == 2


def test_what_is_wrong_is_told(monkeypatch):
    import intarsia

    def relu_to_neg(gm):
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
            node.target = torch.ops.aten.neg.default
        return gm

    pipeline = intarsia.default_pipeline().after("functionalize", relu_to_neg)
    monkeypatch.setattr(intarsia, "default_pipeline", lambda: pipeline)
    text, equal = told("c")
    assert not equal and "equal to eager" not in text and "result" in text


def test_what_cannot_be_done_is_said():
    text, _ = told("step x", "delete 7", "print nothing", "dance", "", "quit")
    for said in ("how many steps is 'x'?", "no breakpoint '7'", "NameError: ", "no command 'dance'"):
        assert said in text
    assert "the graph's end" not in text
    with pytest.raises(InvalidArgumentError, match="did you mean 'loops'"):
        told(level="loop")
    with pytest.raises(InvalidArgumentError, match="has no graph to step through"):
        told(function=lambda x: None, args=(1,))


def test_graphs_on_both_sides_of_a_break_are_stepped_through():
    def broken(x):
        y = x.sin()
        print(end="")
        return y.cos()

    text, equal = told("s", "c", "s", "c", function=broken, args=(torch.ones(3),), level="torch")
    assert equal and "graph 2 of 2" in text and "%sin: f32[3]" in text and "%cos: f32[3]" in text


def test_a_watch_sees_every_step():
    gm = torch.fx.symbolic_trace(lambda x: (x.sin().cos(),))
    steps = []
    run, text = stepped(Case(gm, (torch.ones(3),), (torch.ones(3),), False), "aten", steps.append)
    assert run(torch.zeros(3))[0].tolist() == [1.0] * 3
    assert [step.text.split(" = ")[1].split("(")[0] for step in steps] == ["aten.sin.default", "aten.cos.default"]
    assert all(step.text.split(" = ")[1].partition("  #")[0] in text for step in steps)


def test_the_command(intarsia):
    done = intarsia("debug", "script.py::f", "--level", "kernels", "-c", "break sin", "-c", "c", stdin="v\nc\n")
    assert done.code == 0 and "graph 1 of 1, kernels" in done.out and "> kernel[i0: 4] {" in done.out
    assert done.out.endswith("equal to eager\n")
    assert intarsia("debug", "script.py::wrong", stdin="c\n").code == 0  # the graph is right, its capture isn't


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(0), "float32[0]"),
        (torch.tensor([True, False]), "bool[2], 0 to 1"),
        (torch.tensor([1j, 2]), "complex64[2]"),
        (torch.full((2,), float("nan")), "float32[2], 2 NaN"),
        ((1, 2), "(1, 2)"),
        ("x" * 100, f"'{'x' * 76}..."),
    ],
)
def test_summaries(value, text):
    assert summary(value) == text
