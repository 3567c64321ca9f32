"""Which inputs of a graph are weights that may be relied on, and until when."""

import pytest
import torch

from intarsia_guards.weights import Weight, Weights
from intarsia_ir import ArgumentSource, AttributeSource, InputSpec, ItemSource, Signature
from intarsia_ir.records import Role


class Net:
    def __init__(self) -> None:
        self.w, self.b = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
        with torch.inference_mode():
            self.uncounted = torch.ones(2)
        self.sparse, self.meta = torch.ones(2).to_sparse(), torch.ones(2, device="meta")


def forward(self: Net, x: torch.Tensor) -> None: ...


NET = ArgumentSource("self")
ROLES = {"w": Role.PARAMETER, "b": Role.BUFFER, "uncounted": Role.BUFFER, "sparse": Role.BUFFER, "meta": Role.BUFFER}
SIGNATURE = Signature(
    (
        InputSpec("x", source=ArgumentSource("x")),
        InputSpec("unnamed", Role.PARAMETER),
        *(InputSpec(f"self_{name}", role, AttributeSource(NET, name)) for name, role in ROLES.items()),
    )
)


def found(weights: Weights, net: Net, refused: list[str]) -> dict[str, Weight]:
    values = {"self": net, "x": torch.ones(2)}
    return weights.of(forward.__code__, SIGNATURE, values, globals(), refused.append)


def test_weights_are_plain_tensors_whose_writes_are_counted() -> None:
    net, refused = Net(), list[str]()
    weights = found(Weights(), net, refused)
    assert list(weights) == ["self_w", "self_b"] and weights["self_w"].value is net.w and not refused


@pytest.mark.parametrize("most", [1, 3])
def test_weights_that_change_too_often_are_none(most: int) -> None:
    weights, net, refused = Weights(most), Net(), list[str]()
    for _ in range(most):
        assert list(found(weights, net, refused)) == list(found(weights, net, refused)) == ["self_w", "self_b"]
        net.b.add_(1)
    assert not refused
    assert found(weights, net, refused) == {}
    assert f"more than {most} states" in refused[0] and "forward" in refused[0]
    assert found(weights, net, refused) == {} and found(Weights(most), net, []) != {}


def guard_count(x: torch.Tensor, key: str, **beside: torch.Tensor) -> int:
    """Return how many guards a buffer of a module would have."""
    source = ItemSource(ArgumentSource("buffers"), key)
    signature = Signature((InputSpec("b", Role.BUFFER, source),))
    found = Weights().of(forward.__code__, signature, {"buffers": {key: x, **beside}}, {}, lambda why: None)
    guards = found["b"].guards if found else ()
    assert all(guard.contents in (None, x.numpy().tobytes()) for guard in guards)
    return len(guards)


def test_statistics_are_relied_on_where_their_writes_are_seen() -> None:
    """Large ones stand for those on a GPU, whose contents nothing can look at."""
    large, count = torch.ones(1 << 15), torch.tensor(0)
    assert guard_count(torch.ones(8), "running_mean") == 1
    assert guard_count(large, "running_mean") == 0
    assert guard_count(large, "running_var", num_batches_tracked=count) == 2
    assert guard_count(large, "table") == 1
