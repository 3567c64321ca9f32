"""What happens after a graph ran: writes into inputs, then outputs as the caller of eager code would get them.

The order makes a fault harmless. The graph computes everything first and changes nothing; if it raises,
`RuntimeFault` says so and the caller can run the original program again from an untouched state. Only then come the
writes, in program order, and after them the outputs that alias inputs, made from the caller's own tensors so that
autograd sees real views.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia_ir.errors import RuntimeFault, UnsupportedError
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    Constant,
    Fresh,
    Halves,
    InputItself,
    OutputSpec,
    Role,
    Signature,
    ViewStep,
    Write,
)
from intarsia_ir.size_expressions import filled, symbol_values
from intarsia_runtime._calls import copy

__all__ = ["HookRaised", "own", "owners", "with_epilogue"]

Results = Sequence[Any]
_NO_SIZES: Mapping[str, int] = {}


class HookRaised(BaseException):
    """Carries an exception of the user's own through what takes exceptions for faults of the graph.

    Args:
        error: The exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def with_epilogue(
    run: Callable[..., Results], signature: Signature, halves: Halves | None = None, others: Sequence[Halves] = ()
) -> Callable[..., list[Any]]:
    """Return a function that runs a functional graph and then gives its results their meaning.

    Args:
        run: The graph: inputs in order -> flat results. If its attribute `owns_results` isn't true, results that
            share memory with an input or an earlier result are copied where the signature asks for fresh ones.
        signature: What the results mean.
        halves: When `run` is an autograd node (`with_backward`): the pair around which it is.
        others: When it is several: the other pairs.

    Returns:
        A function of the same inputs that returns the flat list of outputs. It is written for the signature: its
        attribute `source` is the text.

    Raises:
        UnsupportedError: At once, for outputs that would need a backward pass and for seeds among the inputs; later,
            never. The returned function raises RuntimeFault, with its cause, when `run` raises, before any write.

    Example:
        >>> from intarsia_ir.records import Write
        >>> signature = Signature(outputs=(InputItself(0),), writes=(Write(0, 0),))
        >>> double = with_epilogue(lambda x: (x * 2,), signature)
        >>> x = torch.ones(2)
        >>> double(x)[0] is x, x
        (True, tensor([2., 2.]))
    """
    _refuse(signature, halves)
    owns_results = getattr(run, "owns_results", False)
    if halves is None and not owns_results:
        run = torch.no_grad()(run)  # an interpreter's operations would give their results a history
    bound: dict[str, Any] = {"_run": run, "_fault": _fault, "_HookRaised": HookRaised}
    lines = []
    if signature.symbols:
        bound["_sizes_of"] = functools.partial(symbol_values, signature)
        lines.append("sizes = _sizes_of(inputs)")
    sizes = ", sizes" if signature.symbols else ""
    lines += ["try:", "    results = _run(*inputs)"]
    if halves is not None:
        lines += ["except _HookRaised as raised:", "    raise raised.error"]
    lines += ["except Exception as error:", "    raise _fault(error, inputs) from error"]
    if not owns_results:
        bound |= {"_own": own, "_owners": owners(signature)}
        lines.append("results = _own(results, _owners, inputs)")
    pairs = [halves, *others] if halves else []
    lines += _writes(signature, bound, [position for half in pairs for position in half.written])
    graded = [result for half in pairs for result in half.tangents]
    outputs = [_output(spec, number, signature, graded, bound, sizes) for number, spec in enumerate(signature.outputs)]
    lines.append(f"outputs = [{', '.join(outputs)}]")
    if signature.exit_grad_mode is not None:
        bound["_set_grad_enabled"] = torch._C._set_grad_enabled
        lines.append(f"_set_grad_enabled({signature.exit_grad_mode})")
    text = "\n    ".join(["def call(*inputs):", *lines, "return outputs"]) + "\n"
    exec(compile(text, "<intarsia epilogue>", "exec"), bound)
    written: Any = bound["call"]
    written.source = text
    call: Callable[..., list[Any]] = written
    return call


def _fault(error: Exception, inputs: Sequence[Any]) -> RuntimeFault:
    return RuntimeFault(
        f"the compiled graph raised {type(error).__name__}: {error}",
        code="runtime.fault",
        hints=(
            "options={'verify_each': True} checks what each stage gives; of backend='aten', 'loops' and 'kernels', "
            "the first that goes wrong names the part at fault",
        ),
        inputs=inputs,
    )


def _refuse(signature: Signature, halves: Halves | None) -> None:
    if halves is None and any(isinstance(s, (Fresh, AliasOfOutput)) and s.requires_grad for s in signature.outputs):
        raise UnsupportedError(
            "an output would require grad, and graphs are compiled for inference only",
            code="runtime.gradient",
            hints=("call the compiled function under torch.no_grad()",),
        )
    if any(spec.role is Role.SEED for spec in signature.inputs):
        raise UnsupportedError("graphs with seed inputs can't be run yet", code="runtime.seed")


def owners(signature: Signature) -> tuple[int, ...]:
    """Return the results that writes take and that outputs keep alive: each needs storage of its own."""
    written = [write.result for write in signature.writes]
    fresh = [s.result for s in signature.outputs if isinstance(s, Fresh)]
    bases = [s.base for s in signature.outputs if isinstance(s, AliasOfOutput)]
    return tuple(dict.fromkeys([*written, *fresh, *bases]))


def own(results: Results, owners: Sequence[int], inputs: Sequence[Any]) -> Results:
    """Copy the results in `owners` that share memory with an input or with an earlier owner."""
    owned = list(results)
    in_use = {_storage(x) for x in inputs if isinstance(x, Tensor)}
    for position in owners:
        value = owned[position]
        if isinstance(value, Tensor):
            if _storage(value) in in_use:
                with torch.no_grad():
                    owned[position] = value = copy(value)
            in_use.add(_storage(value))
    return owned


def _storage(value: Tensor) -> int:
    address: int = value.untyped_storage()._cdata
    return address


def _writes(signature: Signature, bound: dict[str, Any], tracked: Collection[int]) -> list[str]:
    """Return the statements that write results into inputs, whatever the grad mode is; `tracked` ones in autograd."""
    if not signature.writes:
        return []
    bound["_grad"] = torch.is_grad_enabled
    bound["_set_grad_enabled"] = torch._C._set_grad_enabled
    bound |= {copy_all.__name__: copy_all for copy_all in (_copy_all, _copy_all_uncounted)}
    copies: list[str] = []
    for write in signature.writes:
        if write.input in tracked:
            copies += ["    _set_grad_enabled(True)", _copies([write]), "    _set_grad_enabled(False)"]
    # all results are there and no two inputs share memory, so the order is free
    untracked = [write for write in signature.writes if write.input not in tracked]
    for is_counted in (True, False):
        writes = [write for write in untracked if write.is_counted is is_counted]
        copies += [_copies(writes)] if writes else []
    return [
        "enabled = _grad()",
        "_set_grad_enabled(False)",
        "try:",
        *copies,
        "finally:",
        "    _set_grad_enabled(enabled)",
    ]


def _copies(writes: Sequence[Write]) -> str:
    """Return the statement of some writes, all of them counted or none."""
    if len(writes) == 1 and writes[0].is_counted:
        return f"    inputs[{writes[0].input}].copy_(results[{writes[0].result}])"
    copy_all = _copy_all if writes[0].is_counted else _copy_all_uncounted
    targets = "".join(f"inputs[{write.input}], " for write in writes)
    sources = "".join(f"results[{write.result}], " for write in writes)
    return f"    {copy_all.__name__}(({targets}), ({sources}))"


def _copy_all(targets: tuple[Tensor, ...], sources: tuple[Tensor, ...]) -> None:
    """Write each source into its target, in one call, which on a GPU is one kernel, where no bit stands for a sign."""
    if len(targets) == 1 or any(target.is_neg() or target.is_conj() for target in targets):
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
    else:
        torch._foreach_copy_(targets, sources)


_ANYWHERE = contextlib.nullcontext()


def _copy_all_uncounted(targets: tuple[Tensor, ...], sources: tuple[Tensor, ...]) -> None:
    """Write without counting it among the versions that autograd looks at."""
    counting = tuple([target for target in targets if not target.is_inference()])
    versions = tuple([target._version for target in counting])
    # inference tensors take writes through `.data` anywhere
    with _ANYWHERE if len(counting) == len(targets) else torch.inference_mode():
        _copy_all(targets, sources)
    torch._C._autograd._unsafe_set_version_counter(counting, versions)


def _output(
    spec: OutputSpec, number: int, signature: Signature, graded: Collection[int], bound: dict[str, Any], sizes: str
) -> str:
    """Return the text of one output; results that are `graded` carry gradients, views take `sizes` as well."""
    match spec:
        case Fresh(result=result):
            return f"results[{result}]"
        case InputItself(input=position):
            return f"inputs[{position}]"
        case Constant(value=value):
            bound[f"_constant{number}"] = value
            return f"_constant{number}"
        case AliasOfOutput(base=base, layout=layout, steps=steps, requires_grad=requires_grad):
            view = _viewer(layout, steps)
            # the base may carry gradients where this view of it doesn't
            bound[f"_view{number}"] = torch.no_grad()(view) if base in graded and not requires_grad else view
            return f"_view{number}(results[{base}]{sizes})"
        case AliasOfInput(input=position, layout=layout, steps=steps, requires_grad=requires_grad):
            view = _viewer(layout, steps)
            # eager made this view where grad mode was off
            if not requires_grad and position < len(signature.inputs) and signature.inputs[position].requires_grad:
                view = torch.no_grad()(view)
            bound[f"_view{number}"] = view
            return f"_view{number}(inputs[{position}]{sizes})"
        case _:
            raise UnsupportedError(f"outputs of kind {type(spec).__name__} can't be made", code="runtime.output")


def _viewer(layout: tuple[Any, Any, Any], steps: Sequence[ViewStep]) -> Callable[..., Tensor]:
    """Return the function from base to view: the recorded steps, or the layout when there are none.

    Its second argument are the values of symbols, where there are any.
    """
    if not steps:

        def laid_out(base: Tensor, sizes: Mapping[str, int] = _NO_SIZES) -> Tensor:
            shape, strides, offset = filled(layout, sizes) if sizes else layout
            return torch.as_strided(base, shape, strides, base.storage_offset() + offset)

        return laid_out
    calls = tuple((_overload(step.op), step.args, step.item) for step in steps)

    def view(base: Tensor, sizes: Mapping[str, int] = _NO_SIZES) -> Tensor:
        value: Any = base
        for op, arguments, item in calls:
            value = op(value, *(filled(arguments, sizes) if sizes else arguments))
            if item is not None:
                value = value[item]
        result: Tensor = value
        return result

    return view


def _overload(name: str) -> Callable[..., Any]:
    """Return the overload for a qualified name such as "aten.view.default"."""
    value: Any = torch.ops
    for part in name.split("."):
        value = getattr(value, part)
    overload: Callable[..., Any] = value
    return overload
