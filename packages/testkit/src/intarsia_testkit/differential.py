"""The check that every pass's property test uses: same meaning, valid output, untouched input, origins kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
import torch.fx as fx

from intarsia_ir import AliasOfInput, AliasOfOutput, Constant, Fresh, InputItself, Signature, meta
from intarsia_ir.size_expressions import filled, symbol_values

__all__ = ["Dialect", "apply_signature", "check_functionalized", "check_pass", "clone_all", "same_results"]

Result = TypeVar("Result")


class Dialect(Protocol):
    """A dialect: any module with these functions, such as `intarsia_ir.aten`."""

    @property
    def verify(self) -> Callable[..., None]:
        """Raise `VerifyError` unless the graph obeys the rules."""

    @property
    def interpret(self) -> Callable[..., tuple[Any, ...]]:
        """Run the graph; flat results."""

    @property
    def print_ir(self) -> Callable[..., str]:
        """Return the text of the graph."""


def check_pass(
    pass_: Callable[[fx.GraphModule], Result],
    gm: fx.GraphModule,
    args: Sequence[Any],
    dialect_before: Dialect,
    dialect_after: Dialect | None = None,
    *,
    verify: Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strides: bool = True,
    origins: bool = True,
) -> Result:
    """Run a pass on `gm` and check what STYLE asks of every pass; return what the pass returned.

    Checked: (a) interpreting the output gives what interpreting the input gives, on clones of `args`; (b) the output
    verifies; (c) the text of the input graph is the same before and after; (d) the output's origins are the input's.

    Args:
        pass_: The pass; what it returns is a GraphModule or has one as `graph_module`.
        gm: The input.
        args: Inputs of the program. They are cloned, layouts kept.
        dialect_before: Dialect of the input.
        dialect_after: Dialect of the output; the same when left out.
        verify: Keywords for `verify` of the output, such as `{"functional": True}`.
        rtol: Relative tolerance; by default that of `torch.testing.assert_close` for the type.
        atol: Absolute tolerance, likewise.
        strides: Whether result strides must agree.
        origins: Whether origins are checked.

    Raises:
        AssertionError: Something differs; the message names it and shows both programs.
    """
    dialect_after = dialect_after or dialect_before
    text = dialect_before.print_ir(gm)
    result = pass_(gm)
    made: Any = result
    after: fx.GraphModule = getattr(made, "graph_module", made)
    assert dialect_before.print_ir(gm) == text, f"the pass changed its input, which was\n{text}"
    dialect_after.verify(after, **(verify or {}))
    shown = f"before:\n{text}\nafter:\n{dialect_after.print_ir(after)}"
    if origins:
        _check_origins(gm, after, shown)
    expected_args, actual_args = clone_all(args), clone_all(args)
    expected = dialect_before.interpret(gm, *expected_args)
    actual = dialect_after.interpret(after, *actual_args)
    same_results(actual, expected, rtol=rtol, atol=atol, strides=strides, context=shown)
    same_results(actual_args, expected_args, rtol=rtol, atol=atol, strides=True, context="inputs afterwards; " + shown)
    return result


def same_results(
    actual: Sequence[Any],
    expected: Sequence[Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    strides: bool = True,
    context: str = "",
) -> None:
    """Compare flat results: number, type, dtype, shape, strides where they matter, values; NaN equals NaN.

    Raises:
        AssertionError: They differ; the message has the position and `context`.
    """
    assert len(actual) == len(expected), f"{len(actual)} results instead of {len(expected)}\n{context}"
    for position, (a, e) in enumerate(zip(actual, expected)):
        where = f"result {position}\n{context}"
        if not isinstance(e, torch.Tensor):
            assert type(a) is type(e) and (a == e or (a != a and e != e)), f"{a!r} instead of {e!r}; {where}"
            continue
        assert isinstance(a, torch.Tensor), f"a {type(a).__name__} instead of a tensor; {where}"
        if strides:
            assert _strides(a) == _strides(e), f"strides {a.stride()} instead of {e.stride()}; {where}"
        try:
            torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{where}") from None


def clone_all(args: Sequence[Any]) -> list[Any]:
    """Return copies of `args` with the same layouts; tensors that share memory share it in the copies, too."""
    storages: dict[int, torch.Tensor] = {}
    copies = []
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            copies.append(arg)
            continue
        storage = arg.untyped_storage()
        flat = storages.get(storage.data_ptr())
        if flat is None:
            # a whole copy of the storage, so that offsets and overlaps stay what they are
            flat = torch.empty(0, dtype=torch.uint8, device=arg.device).set_(
                storage.clone(), 0, (storage.nbytes(),), (1,)
            )
            storages[storage.data_ptr()] = flat
        copy = torch.empty(0, dtype=arg.dtype, device=arg.device).set_(
            flat.untyped_storage(), arg.storage_offset(), arg.shape, arg.stride()
        )
        copies.append(copy.requires_grad_(arg.requires_grad))
    return copies


def check_functionalized(
    before: Callable[..., Sequence[Any]],
    after: fx.GraphModule,
    signature: Signature,
    args: Sequence[torch.Tensor],
    dialect: Dialect,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check a functional graph with its signature against the program with effects that it was made from.

    Checked on clones of `args`: outputs, inputs afterwards, and, by writing into every output once more, that outputs
    alias inputs and each other exactly as before.

    Args:
        before: The program with effects, as a function.
        after: The functional graph.
        signature: What its results mean.
        args: Inputs; they may alias one another.
        dialect: Dialect of `after`.
        rtol: As for `check_pass`.
        atol: As for `check_pass`.
    """
    expected_args, actual_args = clone_all(args), clone_all(args)
    with torch.no_grad():
        expected = list(before(*expected_args))
        actual = apply_signature(dialect.interpret(after, *actual_args), signature, actual_args)
        for step in ("at return", "after writing to the outputs"):
            same_results(actual, expected, rtol=rtol, atol=atol, context=f"outputs {step}")
            same_results(actual_args, expected_args, rtol=rtol, atol=atol, context=f"inputs {step}")
            for position, (a, e) in enumerate(zip(actual, expected)):
                if isinstance(e, torch.Tensor) and _can_write(e):
                    a.copy_(torch.full_like(a, position + 1))
                    e.copy_(torch.full_like(e, position + 1))


def apply_signature(results: Sequence[Any], signature: Signature, args: Sequence[Any]) -> list[Any]:
    """Carry out the epilogue of a functional graph: write inputs, then make the outputs. The reference for runtimes.

    Args:
        results: Flat results of the graph.
        signature: What they mean.
        args: The inputs; written ones are changed.

    Returns:
        The flat outputs of the program.
    """
    for write in signature.writes:
        args[write.input].copy_(results[write.result])
    outputs = []
    symbols = symbol_values(signature, args)
    for spec in signature.outputs:
        match spec:
            case Fresh(result=result):
                outputs.append(results[result])
            case AliasOfInput(input=position, layout=layout):
                outputs.append(torch.as_strided(args[position], *filled(layout, symbols)))
            case AliasOfOutput(base=base, layout=layout):
                outputs.append(torch.as_strided(results[base], *filled(layout, symbols)))
            case InputItself(input=position):
                outputs.append(args[position])
            case Constant(value=value):
                outputs.append(value)
            case _:
                raise AssertionError(f"unknown kind of output {spec!r}")
    return outputs


def _check_origins(before: fx.GraphModule, after: fx.GraphModule, shown: str) -> None:
    known = {origin for node in before.graph.nodes for origin in meta.origins(node)}
    for node in after.graph.nodes:
        foreign = [origin for origin in meta.origins(node) if origin not in known]
        assert not foreign, f"{node.name} has origins that the input doesn't: {foreign}\n{shown}"


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element, of tensors with any."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1)


def _can_write(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory; conservative, so overlapping windows count as shared."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride < reach:
            return False
        reach = max(reach, stride * (size - 1) + reach) if size > 1 else reach
    return True
