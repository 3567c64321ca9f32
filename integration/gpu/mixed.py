"""Programs over the CPU and a GPU at once, compiled and compared with eager: values, devices, gradients, counters.

Each program is a function of a device that returns a function and its inputs; `device="cpu"` tries it without a GPU.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import intarsia

__all__ = ["PROGRAMS", "check"]

Made = tuple[Callable[..., Any], tuple[Any, ...]]
_programs: dict[str, Mixed] = {}
PROGRAMS: Mapping[str, Mixed] = MappingProxyType(_programs)


@dataclass(frozen=True, slots=True)
class Mixed:
    """One program.

    Args:
        make: From a device to the function and its inputs.
        train: Whether gradients of its inputs and parameters are compared as well.
        graphs: How many graphs it is captured as; 0: torch decides.
        mode: Of `intarsia.compile`.
        backend: Of `intarsia.compile`; one that interprets makes no kernels.
    """

    make: Callable[[str], Made]
    train: bool = False
    graphs: int = 1
    mode: str = "default"
    backend: str = "auto"


def program(**how: Any) -> Callable[[Callable[[str], Made]], Callable[[str], Made]]:
    def register(make: Callable[[str], Made]) -> Callable[[str], Made]:
        _programs[make.__name__] = Mixed(make, **how)
        return make

    return register


def check(name: str, device: str = "cuda") -> dict[str, Any]:
    """Compile one program, compare it with eager three times, and return the counters.

    Raises:
        AssertionError: It differs from eager, or wasn't compiled as expected.
    """
    case = PROGRAMS[name]
    torch.manual_seed(0)
    function, inputs = case.make(device)
    twin, theirs = copy.deepcopy(function), clones(inputs)
    intarsia.reset()
    with warnings.catch_warnings(), torch.set_grad_enabled(case.train):
        warnings.simplefilter("ignore", RuntimeWarning)  # what isn't replayed says so
        options = {"on_error": "raise", "rng": "eager"}
        compiled = intarsia.compile(function, backend=case.backend, mode=case.mode, options=options)
        for turn in range(3):  # other values each time: nothing of a call may stay
            ours = run(compiled, function, inputs, case.train, turn)
            same(ours, run(twin, twin, theirs, case.train, turn))
    stats = intarsia.stats()
    assert stats.fallbacks == 0 and stats.graphs == (case.graphs or stats.graphs), stats
    assert (stats.kernels_generated > 0) == (case.backend not in ("loops", "kernels")), stats
    return {"kernels": stats.kernels_generated, "externs": stats.extern_calls}


def run(call: Callable[..., Any], owner: Any, inputs: tuple[Any, ...], train: bool, turn: int) -> list[Any]:
    """Return the results, the inputs as they are afterwards, and the gradients."""
    given = tuple(shifted(x, turn) for x in clones(inputs))
    torch.manual_seed(turn)
    results = leaves(call(*given))
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # before anybody reads what was copied asynchronously
    if not train:
        return [*results, *leaves(given)]
    parameters = list(owner.parameters()) if isinstance(owner, nn.Module) else []
    sum((r.square().mean().cpu() for r in results if r.requires_grad), torch.zeros(())).backward()
    gradients = [x.grad for x in (*leaves(given), *parameters)]
    for parameter in parameters:
        parameter.grad = None
    return [*(r.detach() for r in results), *gradients]


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for a, e in zip(ours, theirs, strict=True):
        if e is None:
            assert a is None
            continue
        assert a.device == e.device and a.dtype == e.dtype and a.stride() == e.stride(), (a.device, e.device)
        torch.testing.assert_close(a, e)


def clones(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(clone(v) if isinstance(v, torch.Tensor) else v for v in values)


def clone(x: torch.Tensor) -> torch.Tensor:
    made = x.detach().clone()
    return (made.pin_memory() if x.is_pinned() else made).requires_grad_(x.requires_grad)


def shifted(x: Any, turn: int) -> Any:
    """Return an input with other values, where it holds floats."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    with torch.no_grad():
        return x.add_(0.25 * turn)


def leaves(value: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


# ---- copies between the devices -------------------------------------------------------------------------------


@program()
def copied_to_the_cpu(device: str) -> Made:
    return lambda x: (x.sin() * 2 + 1).cpu(), (torch.randn(64, 33, device=device),)


@program()
def copied_from_the_cpu(device: str) -> Made:
    return lambda h: torch.softmax(h.to(device) * 2, -1), (torch.randn(64, 33),)


@program()
def copied_by_name(device: str) -> Made:
    def function(h: Any) -> Any:
        return (h.cuda() if device == "cuda" else h.to(device)).sin() * 2

    return function, (torch.randn(64, 33),)


@program(graphs=0)
def pinned_on_the_way(device: str) -> Made:
    """Fake tensors can't be pinned: that may break the graph."""

    def function(h: Any) -> Any:
        return pinned(h * 2, device).to(device, non_blocking=True).sin()

    return function, (torch.randn(64, 33),)


@program()
def copied_there_and_back(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        y = (x.sin() + 1).cpu() + h
        return (y * 2).to(device).cos(), y

    return function, (torch.randn(64, 33, device=device), torch.randn(64, 33))


@program()
def copied_to_the_device_of_another(device: str) -> Made:
    return lambda h, x: h.to(x.device, torch.float64) * x, (torch.randn(9), torch.randn(9, device=device))


@program()
def copied_asynchronously(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        y = (x * h.to(device, non_blocking=True)).relu()
        return y.to("cpu", non_blocking=True), y.sum(0).to("cpu", non_blocking=True)

    return function, (torch.randn(4000, 33, device=device), pinned(torch.randn(4000, 33), device))


@program()
def copied_transposed(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        return x.t().cpu(), h.t().to(device) + x.t(), h[1:, ::2].to(device) * 2, h.t()

    return function, (torch.randn(64, 33, device=device), torch.randn(64, 33))


# ---- made on the CPU ------------------------------------------------------------------------------------------


@program()
def mask_of_positions(device: str) -> Made:
    def function(x: Any) -> Any:
        return torch.where((torch.arange(33) < 7).to(x.device), x, -x) * 2

    return function, (torch.randn(64, 33, device=device),)


@program()
def causal_mask(device: str) -> Made:
    def function(q: Any, k: Any) -> Any:
        mask = torch.triu(torch.ones(64, 64, dtype=torch.bool), 1).to(q.device)
        return torch.softmax((q @ k.t()).masked_fill(mask, float("-inf")), -1)

    return function, (torch.randn(64, 32, device=device), torch.randn(64, 32, device=device))


@program()
def rotary_angles(device: str) -> Made:
    def function(x: Any) -> Any:
        steps = torch.outer(torch.arange(64).float(), 10000 ** (-torch.arange(0, 32, 2).float() / 32))
        return x[:, ::2] * torch.cos(steps).to(x.device) - x[:, 1::2] * torch.sin(steps).to(x.device)

    return function, (torch.randn(64, 32, device=device),)


@program()
def literals(device: str) -> Made:
    def function(x: Any) -> Any:
        return x * torch.tensor(2.5) + torch.tensor([1.0, 2.0, 3.0]).to(x.device)

    return function, (torch.randn(64, 3, device=device),)


@program()
def noise_of_the_cpu(device: str) -> Made:
    return lambda x: x + torch.randn(64, 33).to(x.device) * 0.1, (torch.randn(64, 33, device=device),)


@program(mode="reduce-overhead")
def mask_in_a_replayed_graph(device: str) -> Made:
    return mask_of_positions(device)


# ---- numbers and indices --------------------------------------------------------------------------------------


@program()
def numbers(device: str) -> Made:
    def function(x: Any, s: Any) -> Any:
        return x * s + s, s + 1, x.max().cpu() * s

    return function, (torch.randn(64, 33, device=device), torch.tensor(2.5))


@program()
def element_of_a_vector(device: str) -> Made:
    return lambda x, h: x * h[2] + h[0], (torch.randn(64, 33, device=device), torch.randn(5))


@program()
def indices(device: str) -> Made:
    def function(x: Any, i: Any) -> Any:
        return x[i] * 2, x[torch.arange(0, 64, 3)] + 1, x[:, i]

    return function, (torch.randn(64, 33, device=device), torch.tensor([3, -1, 0, 3]))


@program()
def written_at_indices(device: str) -> Made:
    def function(x: Any, i: Any) -> Any:
        y = x * 2
        y[i] = 0.5
        return y + 1

    return function, (torch.randn(64, 33, device=device), torch.tensor([3, -1, 0, 3]))


# ---- state, writes, work on both sides --------------------------------------------------------------------------


@program()
def writes_on_both_sides(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        h[1:3] = (x[1:3] * 2).cpu()
        h.add_(1)
        x.copy_(h * 0.5)
        return x.exp(), h.sum()

    return function, (torch.randn(64, 33, device=device), torch.randn(64, 33))


@program()
def work_on_both_sides(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        return x.sin() * 2, (h @ h.t()).relu().sum(0), (h + x.cpu()).amax(1), h.view(-1)[3:9]

    return function, (torch.randn(64, 33, device=device), torch.randn(64, 33))


@program(mode="reduce-overhead")
def work_that_is_not_replayed(device: str) -> Made:
    return work_on_both_sides(device)


@program(backend="triton")
def work_of_a_named_backend(device: str) -> Made:
    return work_on_both_sides(device)


@program(backend="kernels")
def interpreted_kernels(device: str) -> Made:
    return work_on_both_sides(device)


@program(backend="loops")
def interpreted_loops(device: str) -> Made:
    return numbers(device)


class TableOnTheCpu(nn.Module):
    """A large embedding and a buffer stay on the CPU."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 32)
        self.layer = nn.Linear(32, 16, device=device)
        self.register_buffer("shift", torch.randn(32))

    def forward(self, tokens: Any) -> Any:
        rows = (self.table(tokens) + self.shift).to(self.layer.weight.device)
        return F.gelu(self.layer(rows)).mean(1)


@program()
def table_on_the_cpu(device: str) -> Made:
    return TableOnTheCpu(device), (torch.randint(0, 100, (8, 12)),)


# ---- training ---------------------------------------------------------------------------------------------------


@program(train=True)
def trained_table_on_the_cpu(device: str) -> Made:
    return table_on_the_cpu(device)


@program(train=True)
def trained_on_both_sides(device: str) -> Made:
    def function(x: Any, h: Any) -> Any:
        return (x * h.to(device)).sin(), (x.cpu() * h).cos()

    return function, (leaf(64, 33, device=device), leaf(64, 33))


@program(train=True)
def trained_with_a_loss_on_the_cpu(device: str) -> Made:
    return lambda x, target: (x.tanh().cpu() - target).square().mean(), (leaf(64, 33, device=device), leaf(64, 33))


@program(train=True)
def trained_numbers(device: str) -> Made:
    return lambda x, s: (x * s).tanh() + s, (leaf(64, 33, device=device), torch.tensor(1.5, requires_grad=True))


@program(train=True)
def trained_at_indices(device: str) -> Made:
    inputs = (leaf(64, 33, device=device), torch.tensor([3, -1, 0, 3]))
    return lambda x, i: x[i].sigmoid() * 2 + x[torch.arange(4)], inputs


@program(train=True)
def trained_under_a_mask(device: str) -> Made:
    def function(x: Any) -> Any:
        return (x * torch.tril(torch.ones(64, 64)).to(x.device)).exp().sum(0).cpu()

    return function, (leaf(64, 64, device=device),)


@program(train=True)
def trained_attention(device: str) -> Made:
    inputs = tuple(leaf(2, 4, 64, 32, device=device) for _ in range(3))
    return lambda q, k, v: (2 * F.scaled_dot_product_attention(q, k, v, is_causal=True)).cpu(), inputs


@program(train=True)
def trained_attention_with_dropout(device: str) -> Made:
    """What the dropout drew is saved as numbers on the CPU, although nothing says so; last, should that crash."""
    inputs = tuple(leaf(2, 4, 64, 32, device=device) for _ in range(3))
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.25).sin(), inputs


def leaf(*shape: int, device: str = "cpu") -> torch.Tensor:
    return torch.randn(*shape, device=device, requires_grad=True)


def pinned(x: torch.Tensor, device: str) -> torch.Tensor:
    return x.pin_memory() if device == "cuda" else x
