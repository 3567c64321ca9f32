"""What the backward pass computes for itself names the program's lines, or none, never those of the pass."""

import torch

from intarsia_autodiff import joint_graph
from intarsia_ir import meta


def test_the_gradients_of_a_recurrent_layer_name_no_line_of_ours():
    layer = torch.nn.GRU(3, 4)
    operands = [torch.randn(2, 1, 3), torch.zeros(1, 1, 4), *layer.parameters()]

    def program(x, h, *weights):
        return torch.gru(x, h, list(weights), True, 1, 0.0, True, False, False)

    joint = joint_graph(program, operands)
    files = {o.file for n in joint.graph_module.graph.nodes if n.op == "call_function" for o in meta.origins(n)}
    assert files == {__file__, "<python>"}


def test_a_gradient_names_the_line_of_its_operation_where_one_without_gradients_follows():
    def program(x, y):
        x = x.relu()
        with torch.no_grad():
            y = y * 2
        return (x + y).sum()

    first = program.__code__.co_firstlineno
    joint = joint_graph(program, [torch.randn(3, requires_grad=True), torch.randn(3)])
    (node,) = [n for n in joint.graph_module.graph.nodes if n.target in _SELECTS]
    assert [o.line for o in meta.origins(node)] == [first + 1]
    files = {o.file for n in joint.graph_module.graph.nodes for o in meta.origins(n)}
    assert files <= {__file__, "<python>"}, "and none names what its lines ran under"


_SELECTS = (torch.ops.aten.threshold_backward.default, torch.ops.aten.where.self)
