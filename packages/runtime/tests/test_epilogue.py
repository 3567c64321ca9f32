"""Writes, aliases and faults: the caller must see what eager code would have left behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from intarsia_ir.errors import RuntimeFault, UnsupportedError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    InputItself,
    InputSpec,
    OutputSpec,
    Role,
    Signature,
    ViewStep,
    Write,
)
from intarsia_runtime import with_epilogue

TRANSPOSE = ViewStep("aten.t.default", ())
LAYOUT = ((3, 2), (1, 3), 0)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0).view(2, 3)


@pytest.fixture(autouse=True)
def grad_mode() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)


def storage(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def test_fresh_outputs_in_order(x: torch.Tensor) -> None:
    call = with_epilogue(lambda x: (x + 1, x + 2), Signature(outputs=(Fresh(1), Constant("c"), Fresh(0), Fresh(1))))
    outputs = call(x)
    assert isinstance(outputs, list)
    assert torch.equal(outputs[0], x + 2)
    assert outputs[1] == "c"
    assert torch.equal(outputs[2], x + 1)
    assert outputs[3] is outputs[0], "one result, twice: the same object, as `return y, y` in eager"


def test_writes_happen_in_program_order(x: torch.Tensor) -> None:
    signature = Signature(outputs=(InputItself(0),), writes=(Write(0, 0), Write(0, 1)))
    version = x._version
    (out,) = with_epilogue(lambda x: (x + 1, x + 5), signature)(x)
    assert out is x
    assert x[0].tolist() == [5, 6, 7]
    assert x._version > version


def test_swapping_two_inputs() -> None:
    """Results that are the inputs themselves must be read before they are written."""
    a, b = torch.zeros(2), torch.ones(2)
    with_epilogue(lambda a, b: (b, a), Signature(writes=(Write(0, 0), Write(1, 1))))(a, b)
    assert (a.tolist(), b.tolist()) == ([1, 1], [0, 0])


def _write_threes(targets: Sequence[torch.Tensor], counted: Sequence[bool]) -> None:
    writes = tuple(Write(n, n, is_counted) for n, is_counted in enumerate(counted))
    with_epilogue(lambda *xs: [torch.full(x.shape, 3, dtype=x.dtype) for x in xs], Signature(writes=writes))(*targets)


@pytest.mark.parametrize("counted", itertools.product([True, False], repeat=4))
def test_several_writes_are_counted_or_not(counted: tuple[bool, ...]) -> None:
    negative = torch.zeros(2, dtype=torch.complex64).conj().imag  # its memory holds other numbers than its elements
    targets = [torch.zeros(2), torch.zeros(2), torch.zeros((), dtype=torch.int64), negative]
    versions = [target._version for target in targets]
    _write_threes(targets, counted)
    assert [target.tolist() for target in targets] == [[3, 3], [3, 3], 3, [3, 3]]
    assert [target._version - v for target, v in zip(targets, versions, strict=True)] == list(map(int, counted))


def test_inference_tensors_are_written_in_inference_mode() -> None:
    with torch.inference_mode():
        unversioned = torch.zeros(2)
        targets = [torch.zeros(2), unversioned]
        _write_threes(targets, (True, False))
    assert [target.tolist() for target in targets] == [[3, 3], [3, 3]]


def test_an_inference_tensor_is_written_through_its_data_anywhere() -> None:
    with torch.inference_mode():
        unversioned = torch.zeros(2)
    with pytest.raises(RuntimeError, match="inference tensor"):
        _write_threes([unversioned], (True,))
    targets = [torch.zeros(2), unversioned]
    _write_threes(targets, (False, False))
    assert [target.tolist() for target in targets] == [[3, 3], [3, 3]]
    assert targets[0]._version == 0


def test_a_parameter_is_written_whatever_the_grad_mode() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    with_epilogue(lambda p: (p + 1,), Signature(writes=(Write(0, 0),)))(parameter)
    assert parameter.tolist() == [1, 1]
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert torch.is_grad_enabled()


def test_results_that_share_memory_are_parted(x: torch.Tensor) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y.view(-1), x, x.t(), y

    outputs = with_epilogue(run, Signature(outputs=tuple(map(Fresh, range(5)))))(x)
    assert len({storage(t) for t in (x, *outputs)}) == 6
    for output, expected in zip(outputs, run(x), strict=True):
        assert torch.equal(output, expected)
        assert output.stride() == expected.stride()


def test_results_of_a_linked_graph_are_taken_as_they_are(x: torch.Tensor) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x,)

    run.owns_results = True  # type: ignore[attr-defined]
    (out,) = with_epilogue(run, Signature(outputs=(Fresh(0),)))(x)
    assert out is x


@pytest.mark.parametrize("steps", [(TRANSPOSE,), ()])
def test_alias_of_an_input_sees_the_writes(x: torch.Tensor, steps: tuple[ViewStep, ...]) -> None:
    signature = Signature(outputs=(AliasOfInput(0, LAYOUT, steps),), writes=(Write(0, 0),))
    (view,) = with_epilogue(lambda x: (x * 2,), signature)(x)
    assert storage(view) == storage(x)
    assert torch.equal(view, x.t())
    assert x[0, 1] == 2
    view.zero_()
    assert x.sum() == 0


def test_layouts_count_from_the_first_element() -> None:
    """The storage offset of an input isn't guarded."""
    x = torch.arange(10.0)[4:]
    (view,) = with_epilogue(lambda x: (), Signature(outputs=(AliasOfInput(0, ((2,), (2,), 1)),)))(x)
    assert view.tolist() == [5, 7]


def test_an_interpreter_gives_results_no_history() -> None:
    x = torch.ones(2, requires_grad=True)
    call = with_epilogue(lambda x: (x * 2,), Signature(outputs=(Fresh(0),)))  # of a program that detached its input
    assert not call(x)[0].requires_grad
    assert torch.is_grad_enabled()


def test_alias_of_one_item_of_a_list(x: torch.Tensor) -> None:
    steps = (ViewStep("aten.unbind.int", (1,), 2), ViewStep("aten.view.default", ((2, 1),)))
    (view,) = with_epilogue(lambda x: (), Signature(outputs=(AliasOfInput(0, ((2, 1), (3, 3), 2), steps),)))(x)
    assert torch.equal(view, x[:, 2:])
    assert storage(view) == storage(x)


def test_views_of_an_input_that_requires_grad(x: torch.Tensor) -> None:
    """Made from the caller's tensor, outside any graph, so that autograd flows and in-place writes work."""
    spec = (InputSpec("x", requires_grad=True),)
    leaf = x.requires_grad_()
    y = leaf * 1
    tracked = Signature(spec, (AliasOfInput(0, LAYOUT, (TRANSPOSE,), requires_grad=True),))
    (view,) = with_epilogue(lambda x: (), tracked)(y)
    view.mul_(3)
    y.sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.full((2, 3), 3.0))
    untracked = Signature(spec, (AliasOfInput(0, LAYOUT, (TRANSPOSE,), requires_grad=False),))
    (view,) = with_epilogue(lambda x: (), untracked)(leaf)
    assert not view.requires_grad
    assert torch.is_grad_enabled()


def test_outputs_that_alias_each_other(x: torch.Tensor) -> None:
    signature = Signature(outputs=(AliasOfOutput(0, LAYOUT, (TRANSPOSE,)), Fresh(0), AliasOfOutput(0, ((3,), (1,), 3))))
    first, base, last = with_epilogue(lambda x: (x + 1,), signature)(x)
    assert storage(first) == storage(base) == storage(last)
    assert torch.equal(first, (x + 1).t())
    assert torch.equal(last, (x + 1)[1])


def test_grad_mode_at_exit(x: torch.Tensor) -> None:
    with_epilogue(lambda x: (x + 1,), Signature(outputs=(Fresh(0),), exit_grad_mode=False))(x)
    assert not torch.is_grad_enabled()


def test_a_fault_changes_nothing(x: torch.Tensor) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise IndexError("index 7 is out of range")

    before = x.clone()
    with pytest.raises(RuntimeFault, match="IndexError: index 7") as caught:
        with_epilogue(run, Signature(writes=(Write(0, 0),), exit_grad_mode=False))(x)
    assert caught.value.code == "runtime.fault"
    assert isinstance(caught.value.__cause__, IndexError)
    assert torch.equal(x, before)
    assert torch.is_grad_enabled()


def test_an_interrupt_is_no_fault(x: torch.Tensor) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_epilogue(run, Signature())(x)


@pytest.mark.parametrize(
    "signature",
    [
        Signature(outputs=(Fresh(0, requires_grad=True),)),
        Signature(outputs=(AliasOfOutput(0, LAYOUT, requires_grad=True),)),
    ],
)
def test_outputs_that_require_grad_are_refused(signature: Signature) -> None:
    with pytest.raises(UnsupportedError, match="no_grad") as caught:
        with_epilogue(lambda x: (x,), signature)
    assert caught.value.code == "runtime.gradient"


def test_seeds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="seed"):
        with_epilogue(lambda x: (x,), Signature((InputSpec("s", Role.SEED),)))


def test_unknown_outputs_are_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Other(OutputSpec):
        pass

    with pytest.raises(UnsupportedError, match="Other"):
        with_epilogue(lambda x: (x,), Signature(outputs=(Other(),)))


@pytest.mark.parametrize(
    ("eager", "graph", "signature"),
    [
        (
            lambda x: (x.add_(1), x.view(-1)),
            lambda x: (x + 1,),
            Signature(
                outputs=(InputItself(0), AliasOfInput(0, ((6,), (1,), 0), (ViewStep("aten.view.default", ((-1,),)),))),
                writes=(Write(0, 0),),
            ),
        ),
        (
            lambda x: (x[0], x.mul_(2) + 1, x[0:1]),
            lambda x: (x * 2, x * 2 + 1),
            Signature(
                outputs=(
                    AliasOfInput(0, ((3,), (1,), 0), (ViewStep("aten.select.int", (0, 0)),)),
                    Fresh(1),
                    AliasOfInput(0, ((1, 3), (3, 1), 0), (ViewStep("aten.slice.Tensor", (0, 0, 1)),)),
                ),
                writes=(Write(0, 0),),
            ),
        ),
    ],
)
def test_like_eager(
    x: torch.Tensor, eager: Callable[..., Any], graph: Callable[..., Any], signature: Signature
) -> None:
    """Also when the input starts inside its storage: steps are relative to the tensor."""
    for start in (0, 4):
        ours, theirs = (torch.arange(10.0)[start : start + 6].view(2, 3) for _ in range(2))
        outputs, expected = with_epilogue(graph, signature)(ours), eager(theirs)
        assert torch.equal(ours, theirs)
        for output, value in zip(outputs, expected, strict=True):
            assert torch.equal(output, value)
            assert output.stride() == value.stride()
            assert output.storage_offset() == value.storage_offset()
            assert (storage(output) == storage(ours)) == (storage(value) == storage(theirs))
