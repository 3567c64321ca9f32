"""What people do to a compiler's inside: edit a graph, bring a backend, look at the bytecode, set a breakpoint."""

import dis
import io
import pdb
import sys

import torch

import intarsia

RAISE = {"on_error": "raise"}


def test_replace_every_relu_by_gelu_in_a_captured_graph():
    def f(x):
        return torch.relu(torch.relu(x) - 0.5)

    seen = []

    def edit(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.op == "call_function" and node.target is torch.relu:
                node.target = torch.nn.functional.gelu
                seen.append(node.op)
        gm.recompile()
        return gm

    x = torch.randn(5)
    gelu = torch.nn.functional.gelu
    torch.testing.assert_close(intarsia.compile(f, backend=edit, options=RAISE)(x), gelu(gelu(x) - 0.5))
    assert seen == ["call_function", "call_function"]


def test_a_backend_of_the_users_and_the_bytecode_that_calls_it():
    graphs = []

    def my_compiler(gm, example_inputs):
        graphs.append((gm, example_inputs))
        return gm.forward

    def f(x, y):
        return torch.sin(x) + y

    x, y = torch.randn(3), torch.randn(3)
    fast = intarsia.compile(f, backend=my_compiler, options=RAISE)  # its code ends with it
    torch.testing.assert_close(fast(x, y), torch.sin(x) + y)
    ((gm, example_inputs),) = graphs
    assert len(example_inputs) == 2 and "sin" in gm.code
    (entry,) = intarsia.compiled_code(f)
    text = io.StringIO()
    dis.dis(entry, file=text)
    assert "__compiled_fn_0" in text.getvalue()


def test_breakpoint_stops_in_the_users_frame(monkeypatch):
    stopped = []

    def hook(*args, **kwargs):
        stopped.append(sys._getframe(1).f_locals["y"].clone())

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x):
        y = x + 1
        breakpoint()
        return y * 2

    x = torch.randn(3)
    torch.testing.assert_close(intarsia.compile(f)(x), (x + 1) * 2)
    torch.testing.assert_close(stopped[0], x + 1)


def test_a_running_debugger_sees_eager_and_nothing_hangs():
    def f(x):
        y = x + 1
        return y * 2

    x = torch.randn(3)
    fast = intarsia.compile(f)
    commands = io.StringIO("step\nnext\nnext\ncontinue\n")
    debugger = pdb.Pdb(stdin=commands, stdout=io.StringIO(), nosigint=True)
    result = debugger.runcall(fast, x)
    torch.testing.assert_close(result, (x + 1) * 2)
    torch.testing.assert_close(fast(x), (x + 1) * 2)
