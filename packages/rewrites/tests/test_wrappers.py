"""Tensors of wrapper subclasses: their classes say what an operation does, so what the program calls stays."""

import torch
import torch.fx as fx
from torch.testing._internal.two_tensor import TwoTensor

from intarsia_ir import meta
from intarsia_ir.torch import Wrap
from intarsia_rewrites import recognise_attention


def attention_of(wrapped: bool) -> fx.GraphModule:
    """Return FX(torch) of attention whose keys are, or aren't, a tensor of a subclass."""
    graph, shape = fx.Graph(), (2, 3, 8, 8)
    q, k, v = (graph.placeholder(name) for name in "qkv")
    keys = graph.call_function(Wrap(TwoTensor, ("a", "b"), None), (shape, (192, 64, 8, 1), k, k)) if wrapped else k
    scores = graph.call_function(torch.matmul, (q, keys))
    weights = graph.call_function(torch.softmax, (scores, -1))
    graph.output((graph.call_function(torch.matmul, (weights, v)),))
    plain = torch.zeros(shape)
    for node in graph.nodes:
        if node.op != "output":
            meta.set_value(node, TwoTensor(plain, plain) if wrapped and node is keys else plain)
    return fx.GraphModule(torch.nn.Module(), graph)


def test_attention_of_a_subclass_stays_written_out() -> None:
    plain, wrapped = attention_of(False), attention_of(True)
    assert recognise_attention(plain, check=False) is not plain
    assert recognise_attention(wrapped, check=False) is wrapped
