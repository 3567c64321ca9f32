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
