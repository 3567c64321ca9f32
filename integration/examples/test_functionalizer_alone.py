"""For the author of another compiler: our functionalizer, alone, on a graph that somebody else's tracer made."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from intarsia_functionalizer import functionalize
from intarsia_ir import aten


def bump_first_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].add_(1)
    x.mul_(3)
    return y


@pytest.mark.peer
def test_functionalize_a_graph_of_make_fx():
    x = torch.randn(3, 4)
    traced = make_fx(bump_first_row, tracing_mode="fake")(x.clone())
    before = str(traced.graph)

    result = functionalize(traced, check=False)

    assert str(traced.graph) == before, "the given graph is left as it was"
    targets = [n.target for n in result.graph_module.graph.nodes if n.op == "call_function"]
    assert targets and not any(getattr(t, "_schema", None) and t._schema.is_mutable for t in targets)
    eager_x = x.clone()
    expected = bump_first_row(eager_x)
    results = aten.interpret(result.graph_module, x)
    (write,) = result.signature.writes
    (output,) = result.signature.outputs
    torch.testing.assert_close(results[output.result], expected)
    torch.testing.assert_close(results[write.result], eager_x)
