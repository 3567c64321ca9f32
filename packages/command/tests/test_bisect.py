"""`intarsia bisect` as a process, and what it takes apart."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import intarsia
from intarsia_command.bisecting import Case, find, operations, shrink
from intarsia_command.programs import load

SCRIPT = """
import torch
import torch.fx as fx
import intarsia


def breaks_the_third_relu(gm: fx.GraphModule, *, fuel: int | None = None) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for number, node in enumerate(graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)):
        if number == 2 and (fuel is None or fuel > number):
            node.target = torch.ops.aten.neg.default
    graph.output_node().meta = dict(gm.graph.output_node().meta)
    return fx.GraphModule(gm, graph)


wrong = intarsia.default_pipeline().after("functionalize", breaks_the_third_relu)


def f(x, y):
    z = torch.relu(x - 1) @ y
    z = torch.relu(z + 0.5) * torch.sigmoid(y)
    return torch.relu(z - x).sum(-1) + torch.exp(z).mean()


def f_inputs():
    return torch.randn(4, 4), torch.randn(4, 4)


def captured_wrong(x):
    return x + 1 if torch.compiler.is_compiling() else x


def captured_wrong_inputs():
    return torch.zeros(3)
"""


@pytest.fixture(scope="module")
def script(folder):
    (folder / "wrong.py").write_text(SCRIPT)
    return folder / "wrong.py"


def test_a_fault_is_found_and_shown(intarsia, script, tmp_path):
    shown = tmp_path / "shown.py"
    done = intarsia("bisect", "wrong.py::f", "--pipeline", "wrong", "-o", shown)
    assert done.code == 1 and done.out.startswith("stage 'breaks_the_third_relu', rewrite or decision 3\n")
    assert "-  %relu_default_2: f32[4, 4] = aten.relu.default" in done.out and "wrong.py:23 in f (relu_2)" in done.out
    assert "+  %relu_default_2: f32[4, 4] = aten.neg.default" in done.out
    assert "has 3 operation(s)" in done.err  # the third of as many
    ran = subprocess.run([sys.executable, shown], capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "equal to eager\n"), ran.stderr  # the pipeline is the script's own


def test_what_is_right_is_said_to_be(intarsia, script, tmp_path):
    done = intarsia("bisect", "wrong.py::f", "-o", tmp_path / "none.py")
    assert (done.code, done.out) == (0, "equal to eager\n") and not (tmp_path / "none.py").exists()


def test_the_front_end_is_named(inside, script):
    done = inside("bisect", "wrong.py::captured_wrong")
    assert done.code == 1 and done.out.startswith("stage 'capture'\n")


def test_mistakes_are_named(inside, script):
    done = inside("bisect", "wrong.py::f", "--pipeline", "wring")
    assert done.code == 2 and "has nothing called 'wring'" in done.err
    done = inside("bisect", "wrong.py::f", "--pipeline", "f_inputs")
    assert done.code == 2 and "the pipeline f_inputs must be Pipeline" in done.err
    done = inside("bisect", "wrong.py::f", "--pipeline", "wrong", "-o", "nowhere/x.py")
    assert done.code == 2 and "can't be written" in done.err


def captured(function, *inputs):
    """Return the case of the one graph of a function."""
    from intarsia_command.bisecting import cases_of
    from intarsia_command.programs import Program

    (case,) = cases_of(Program("f", function, lambda: [(inputs, {})]), train=False, dynamic=False)
    return case


def has(target):
    return lambda case: any(node.target is target for node in case.graph_module.graph.nodes)


def test_a_graph_shrinks_to_what_fails():
    def f(x):
        for _ in range(40):
            x = x + 1
        x = torch.sin(x) * 2
        for _ in range(40):
            x = x - 1
        return x, x.sum()

    case = captured(f, torch.randn(3))
    assert operations(case.graph_module) > 80
    asked: list[Case] = []

    def fails(part: Case) -> bool:
        asked.append(part)
        part.graph_module(*part.inputs)  # what it is given runs
        return has(torch.sin)(part)

    small = shrink(case, fails)
    assert operations(small.graph_module) == 1 and has(torch.sin)(small) and len(asked) < 40
    torch.testing.assert_close(small.inputs[0], case.inputs[0] + 40)


def test_two_far_apart_stay_together():
    def f(x):
        x = torch.sin(x)
        for _ in range(10):
            x = x + 1
        return torch.cos(x)

    small = shrink(captured(f, torch.randn(3)), lambda part: has(torch.sin)(part) and has(torch.cos)(part))
    assert has(torch.sin)(small) and has(torch.cos)(small) and operations(small.graph_module) == 2


def test_no_culprit_where_nothing_is_wrong():
    case = captured(lambda x: torch.softmax(x, -1), torch.randn(3, 4))
    assert find(case, intarsia.default_pipeline()) is None


def test_scripts_are_loaded_once(script):
    one, two = load(f"{script}::f"), load(f"{script}::f")
    assert one.function is two.function
