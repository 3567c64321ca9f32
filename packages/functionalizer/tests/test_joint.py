"""Joint forward and backward graphs are graphs like others: functionalized, they give eager's gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_functionalizer import default_decompositions, functionalize
from intarsia_functionalizer._reference import apply_signature
from intarsia_ir import aten, meta
from intarsia_ir.records import Fresh, InputSpec, Signature
from intarsia_ir.values import Recorded
from intarsia_recorder import Recorder, graph_module, recording


def joint(program, inputs):
    """Record outputs and gradients of `program`, whose tensors are all parameters but the first."""
    mode = FakeTensorMode(static_shapes=True)
    fakes = [mode.from_tensor(x) for x in inputs]
    recorder = Recorder(mode, decompositions=default_decompositions())
    nodes = [recorder.placeholder(x, f"primal{n}") for n, x in enumerate(fakes)]
    with recording(recorder):
        outputs = program(*fakes)
    tangents = []
    with mode:
        for n, output in enumerate(outputs):
            tangents.append(torch.empty_strided(output.shape, output.stride()))
            nodes.append(recorder.placeholder(tangents[-1], f"tangent{n}"))
    recorder.phase = "backward"
    primals = [x for x in fakes if x.requires_grad]
    with recording(recorder):
        gradients = torch.autograd.grad(outputs, primals, tangents)
    recorder.graph.output(tuple(recorder.node_of(g) for g in (*outputs, *gradients)))
    recorder.forget_autograd()
    signature = Signature(
        tuple(InputSpec(node.name) for node in nodes), tuple(Fresh(n) for n in range(len(outputs) + len(gradients)))
    )
    return Recorded(graph_module(recorder.root, recorder.graph), signature)


def p(*shape):
    return torch.randn(*shape).requires_grad_()


def mlp(x, w, b):
    return (F.gelu(F.linear(x, w, b)).sum(-1),)


def normalised(x, w, gain, bias, mean, var, count):
    count.add_(1)
    y = F.conv2d(x, w, padding=1)
    return (F.relu(F.batch_norm(y, mean, var, gain, bias, training=True), inplace=True),)


def written_view(x, w):
    y = x @ w
    y.t().mul_(2)
    y[0].add_(1)
    y[:, 1:3] = 5.0
    return (y.relu(),)


def aliases(x, w):
    y = F.relu(x @ w, inplace=True)
    return y, y.view(-1)


def dropout(x, w):
    return (F.dropout(x @ w, 0.5),)


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (mlp, lambda: [torch.randn(4, 8), p(16, 8), p(16)]),
        (
            normalised,
            lambda: [
                torch.randn(3, 4, 6, 6),
                p(8, 4, 3, 3),
                p(8),
                p(8),
                torch.zeros(8),
                torch.ones(8),
                torch.tensor(0),
            ],
        ),
        (written_view, lambda: [p(5, 4), p(4, 6)]),
        (aliases, lambda: [p(5, 4), p(4, 4)]),
        (dropout, lambda: [p(5, 4), p(4, 4)]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_gradients(program, inputs):
    inputs = inputs()
    done = functionalize(joint(program, inputs))
    aten.verify(done.graph_module, functional=True)
    phases = [meta.phase(n) for n in done.graph_module.graph.nodes if n.op == "call_function"]
    assert phases == sorted(phases, reverse=True), "forward, then backward"

    eager = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    torch.manual_seed(0)
    outputs = program(*eager)
    tangents = [torch.randn_like(o) for o in outputs]
    gradients = torch.autograd.grad(outputs, [x for x in eager if x.requires_grad], tangents)

    ours = [*(x.detach().clone() for x in inputs), *tangents]
    torch.manual_seed(0)
    with torch.no_grad():
        results = apply_signature(aten.interpret(done.graph_module, *ours), ours, done.signature)
    expected = [t.detach() for t in (*outputs, *gradients)]
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[: len(inputs)], [x.detach() for x in eager], rtol=1e-5, atol=1e-5)
