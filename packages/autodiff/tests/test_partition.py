"""A joint graph's halves: as many backward graphs as parts, which together compute what it does."""

import torch

from intarsia_autodiff import joint_graph, partition
from intarsia_autodiff.analysis import Analysis
from intarsia_ir import meta
from intarsia_ir.aten import interpret


def leaf() -> torch.Tensor:
    return torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()


def test_the_halves_compute_what_the_joint_graph_does() -> None:
    joint = joint_graph(lambda x: x.sin().exp(), (leaf(),))
    done = partition(joint)
    (backward,) = done.partition.backwards
    x, tangent = leaf().detach(), torch.ones(2, 3)
    result, gradient = interpret(joint.graph_module, x, tangent)
    forward = interpret(done.partition.forward.graph_module, x)
    assert torch.equal(forward[0], result)
    saved = [*forward[1:], *[x] * (len(done.plan.saved) - len(forward[1:]))]
    (found,) = interpret(backward.graph_module, *saved, tangent)
    assert torch.equal(found, gradient)


def test_a_result_that_is_saved_without_autograd_keeping_it_is_copied() -> None:
    analysis = Analysis(joint_graph(lambda x: (x.sin(), x.exp()), (leaf(),)))
    calls = {str(node.target): node for node in analysis.graph.nodes if node.op == "call_function"}
    sine, exponential = calls["aten.sin.default"], calls["aten.exp.default"]
    # exp's formula keeps its result, sin's keeps its input
    assert meta.is_kept(exponential) and not meta.is_kept(sine)
    assert sine in analysis.copied and exponential not in analysis.copied


def test_outputs_that_are_no_tensors_need_no_gradient() -> None:
    joint = joint_graph(lambda x: (x.sin(), 3, None), (leaf(),))
    x = leaf().detach()
    result, gradient = interpret(joint.graph_module, x, torch.ones(2, 3))
    assert torch.equal(result, x.sin())
    torch.testing.assert_close(gradient, x.cos())
