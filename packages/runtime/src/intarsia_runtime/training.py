"""The autograd nodes around a forward and its backward graphs.

    def forward(ctx, box, inputs, *linked):         what autograd calls; gradients are off here
        results = _forward(*inputs)
        box.append(results)                         results that need no gradient, writes among them, leave this way
        ctx.save_for_backward(inputs[0], results[1])
        ctx.set_materialize_grads(False)
        ctx.others = _remember(inputs)              the other inputs, weakly
        return results[0],
    def backward(ctx, t0):
        n0 = t0 is None
        if n0: return None,
        _unobserved((t0,))                          raises where a tracer or a transform would have to see operations
        if _grad_enabled(): ...                     gradients to be differentiated again: see `again`
        s0, s1 = ctx.saved_tensors                  raises eager's own error the second time
        t0 = _fit(t0, (4, 8), (8, 1), "float32", "cpu")
        g0, = _backward(s0, s1, t0)
        return None, None, g0

Invariants:
    - Values go through `save_for_backward`, so they are freed, hooked and checked for writes as eager's are. What eager
      would have saved in their place is checked for writes as well.
    - Results that share no saved value in eager belong to nodes of their own: going back from one leaves the others.
    - Only inputs that have a gradient are linked to a node: what is detached inside is never gone back to.
    - Writes and outputs that alias come after the nodes: autograd sees them as the eager calls that they are.
    - A gradient that no tangent of this backward pass reaches is None, as in eager, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.observers import ANOMALY, observer
from intarsia_ir.records import Constant, Halves, Role, SavedValue
from intarsia_runtime._calls import restride
from intarsia_runtime.again import Rerun, gradients_again, remembering
from intarsia_runtime.epilogue import HookRaised, own, owners, with_epilogue
from intarsia_runtime.watch import check_watched, watch

__all__ = ["with_backward"]

Results = Sequence[Any]
_UNKNOWN = Rerun(fx.GraphModule({}, fx.Graph()), refusal="what it computes in eager isn't known")


def with_backward(
    forward: Callable[..., Results],
    backward: Callable[..., Results],
    halves: Halves,
    others: Sequence[tuple[Callable[..., Results], Halves]] = (),
    rerun: Rerun | None = None,
) -> Callable[..., Results]:
    """Return a function like `forward` whose results carry gradients through `backward`.

    Args:
        forward: The forward graph: inputs in order -> results, saved values among them.
        backward: The backward graph: saved values and tangents in order -> results.
        halves: How they fit together.
        others: More backward graphs, for other results, with how each fits together with the forward graph.
        rerun: How eager runs the program, for gradients that are differentiated again.

    Returns:
        A function for `with_epilogue`, with the attributes of `link`'s runners.
        Differentiating its gradients again raises UnsupportedError, code "training.double_backward"; so does, with
        "training.observed", asking for them under a tracer, a transform or a dispatch mode.

    Example:
        >>> from intarsia_ir.records import Fresh, InputSpec, SavedValue, Signature
        >>> halves = Halves(
        ...     Signature((InputSpec("x"),), (Fresh(0),)),
        ...     Signature((InputSpec("x"), InputSpec("t")), (Fresh(0),)),
        ...     saved=(SavedValue(0, is_input=True),), tangents=(0,), gradients=(0,), needs=((0,),),
        ...     layouts=(((1,), (1,), "float32", "cpu"),),
        ... )
        >>> run = with_backward(lambda x: (x * x,), lambda x, t: (2 * x * t,), halves)
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> run(x)[0].backward()
        >>> x.grad
        tensor([6.])
    """
    if not halves.tangents:
        return forward
    bound: dict[str, Any] = {
        "_forward": forward,
        "_grad_enabled": torch.is_grad_enabled,
        "_enable_grad": torch.enable_grad,
        "_HookRaised": HookRaised,
    }
    if not getattr(forward, "owns_results", False):
        bound["_forward"] = _owning(forward, owners(halves.forward))
    pairs = [(backward, halves), *others]
    texts = [
        _node_text(half, number, {r for _, h in pairs if h is not half for r in h.tangents})
        for number, (_, half) in enumerate(pairs)
    ]
    calls = []
    for number, ((run_backward, half), text) in enumerate(zip(pairs, texts, strict=True)):
        bound[f"_apply{number}"] = _node(text, bound["_forward"], run_backward, half, rerun)
        linked = "".join(f", inputs[{position}]" for position in _linked(half))
        calls.append(f"_apply{number}(box, inputs{linked})")
    call = _CALL.format(calls="\n            ".join(calls), again="\n                ".join(calls))
    exec(compile(call, "<intarsia autograd node>", "exec"), bound)
    written: Any = bound["run"]
    written.source, written.owns_results = "".join([*texts, call]), True
    run: Callable[..., Results] = written
    return run


def _node(
    text: str, forward: Callable[..., Results], backward: Callable[..., Results], halves: Halves, rerun: Rerun | None
) -> Callable[..., Any]:
    """Return the `apply` of the node with this text."""
    bound: dict[str, Any] = {
        "_forward": forward,
        "_backward": with_epilogue(backward, halves.backward),
        "_grad_enabled": torch.is_grad_enabled,
        "_remember": remembering(halves),
        "_again": gradients_again(rerun or _UNKNOWN, halves),
        "_unobserved": _check_unobserved,
        "_fit": _fit,
        "_watch": watch,
        "_check": check_watched,
        "_nothing": torch.empty(0, device="cpu"),
    }
    exec(compile(text, "<intarsia autograd node>", "exec"), bound)
    methods = {name: staticmethod(bound[name]) for name in ("forward", "backward")}
    node = type("CompiledGraph", (torch.autograd.Function,), methods)
    apply: Callable[..., Any] = node.apply  # type: ignore[attr-defined]
    return apply


# a region of the program may need gradients where the call itself is made without
_CALL = """\
def run(*inputs):
    box = []
    try:
        if _grad_enabled():
            {calls}
        else:
            with _enable_grad():
                {again}
    except Exception as error:
        if box:  # the graph is through: what raised is a hook of the user's on the tensors that are saved
            raise _HookRaised(error) from error
        raise
    return box[0]
"""


def _owning(forward: Callable[..., Results], positions: Sequence[int]) -> Callable[..., Results]:
    """Copy results that share memory inside of the node: outside, a copy would be another step of autograd's."""
    return lambda *inputs: own(forward(*inputs), positions, inputs)


def _linked(halves: Halves) -> tuple[int, ...]:
    """Return the inputs that have a gradient; all that require grad where none has one."""
    pairs = zip(halves.gradients, halves.backward.outputs, strict=True)
    graded = tuple(position for position, spec in pairs if not isinstance(spec, Constant))
    return graded or tuple(n for n, spec in enumerate(halves.forward.inputs) if spec.requires_grad)


def _node_text(halves: Halves, number: int, of_others: Collection[int]) -> str:
    return "\n".join([*_forward_text(halves, number, of_others), *_backward_text(halves)]) + "\n"


def _forward_text(halves: Halves, number: int, of_others: Collection[int]) -> list[str]:
    """Return the lines of a node's `forward`; the first runs the graph.

    Args:
        halves: What it is for.
        number: Number of the node.
        of_others: Results of other nodes. Saved, they are cut off from these: two nodes would hold each other.
    """

    def place(value: SavedValue) -> str:
        if value.is_input:
            return f"inputs[{value.position}]"
        return f"results[{value.position}]{'.detach()' * (value.position in of_others)}"

    tensors, numbers = _split(halves, [place(value) for value in halves.saved])
    results = [f"results[{position}]" for position in dict.fromkeys(halves.tangents)]
    lines = ["def forward(ctx, box, inputs, *linked):"]
    lines += ["    results = box[0]"] if number else ["    results = _forward(*inputs)", "    box.append(results)"]
    if tensors or halves.frees:  # what is freed can't be had again: eager raises, whether or not we need it
        lines.append(f"    ctx.save_for_backward({', '.join(tensors) or '_nothing'})")
    if remembering(halves):
        lines.append("    ctx.others = _remember(inputs)")
    if numbers:
        lines.append(f"    ctx.numbers = ({', '.join(numbers)},)")
    if halves.watched:
        written = {write.input for write in halves.forward.writes if write.is_counted}
        pairs = [f"({place(v)}, {int(v.is_input and v.position in written)})" for v in halves.watched]
        lines.append(f"    ctx.watched = _watch({', '.join(pairs)})")
    if not all(_is_static(layout) for layout in halves.layouts):
        lines.append(f"    ctx.layouts = [(r.shape, r.stride()) for r in ({', '.join(results)},)]")
    return [*lines, "    ctx.set_materialize_grads(False)", f"    return {', '.join(results)},"]


def _backward_text(halves: Halves) -> list[str]:
    """Return the lines of a node's `backward`."""
    tangents = [f"t{number}" for number in range(len(halves.tangents))]
    without = [f"n{number}" for number in range(len(tangents))]
    tensors, _ = _split(halves, [f"s{number}" for number in range(len(halves.saved))])
    lines = [f"def backward(ctx, {', '.join(tangents)}):"]
    lines += [f"    {missing} = {tangent} is None" for missing, tangent in zip(without, tangents, strict=True)]
    lines.append(f"    if {' and '.join(without)}: {_return(halves, {})}")
    if halves.raises:
        return [*lines, f"    raise RuntimeError({halves.raises!r})"]
    if halves.frees and not tensors:
        lines.append("    ctx.saved_tensors")
    saved, others = "ctx.saved_tensors" if tensors else "()", "ctx.others" if remembering(halves) else None
    lines += [
        "    if _grad_enabled():",
        f"        a = _again({saved}, {others}, ({', '.join(tangents)},))",
        f"        {_return(halves, {n: f'a[{place}]' for place, n in enumerate(halves.gradients)})}",
        f"    _unobserved(({', '.join(tangents)},))",
    ]
    lines += _recall_text(halves)
    if halves.gradients:
        lines += _gradients_text(halves, tangents, without)
    return [*lines, f"    {_return(halves, {n: f'g{place}' for place, n in enumerate(halves.gradients)})}"]


def _return(halves: Halves, gradients: Mapping[int, str]) -> str:
    """Return the statement that gives autograd a gradient for each argument of `forward`.

    Args:
        halves: What the node is for.
        gradients: Input -> the text of its gradient; for the others None is returned.
    """
    return f"return {', '.join(['None', 'None', *[gradients.get(n, 'None') for n in _linked(halves)]])}"


def _recall_text(halves: Halves) -> list[str]:
    """Return the lines that fetch saved values, as s0, s1, ..., and check that nobody wrote what eager saves."""
    tensors, numbers = _split(halves, [f"s{number}" for number in range(len(halves.saved))])
    lines = [f"    {', '.join(tensors)}, = ctx.saved_tensors"] if tensors else []
    lines += ["    _check(ctx.watched)"] if halves.watched else []
    return [*lines, f"    {', '.join(numbers)}, = ctx.numbers"] if numbers else lines


def _gradients_text(halves: Halves, tangents: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return the lines that lay tangents out, run the backward graph, and take back what none of them reaches.

    Args:
        halves: What the node is for.
        tangents: Their names.
        without: For each the name that is true where it is missing.
    """
    lines = []
    for number, (tangent, layout) in enumerate(zip(tangents, halves.layouts, strict=True)):
        where = f"{layout[0]}, {layout[1]}" if _is_static(layout) else f"*ctx.layouts[{number}]"
        lines.append(f"    {tangent} = _fit({tangent}, {where}, {layout[2]!r}, {layout[3]!r})")
    gradients = [f"g{place}" for place in range(len(halves.gradients))]
    arguments = [*[f"s{number}" for number in range(len(halves.saved))], *tangents]
    lines.append(f"    {', '.join(gradients)}, = _backward({', '.join(arguments)})")
    if len(tangents) == 1:
        return lines
    lines.append(f"    if {' or '.join(without)}:")
    for gradient, spec, needs in zip(gradients, halves.backward.outputs, halves.needs, strict=True):
        condition = "" if isinstance(spec, Constant) else f"if {' and '.join(without[t] for t in needs) or 'False'}: "
        lines.append(f"        {condition}{gradient} = None")
    return lines


def _split(halves: Halves, texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts of the saved values apart: those of tensors, and those of sizes."""
    pairs = [*zip(texts, halves.backward.inputs, strict=False)]
    return [t for t, s in pairs if s.role is not Role.SIZE], [t for t, s in pairs if s.role is Role.SIZE]


def _is_static(layout: tuple[Any, ...]) -> bool:
    return all(isinstance(number, int) for number in (*layout[0], *layout[1]))


def _fit(tangent: Tensor | None, shape: Any, strides: Any, dtype: str, device: str) -> Tensor:
    """Return a tangent in the layout that the backward graph was compiled for; zeros if there is none."""
    if tangent is None:
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=device).zero_()
    if tangent.layout is not torch.strided:  # of a lookup with sparse=True
        tangent = tangent.to_dense()
    if tangent.is_neg() or tangent.is_conj() or tangent._is_zerotensor():
        # kernels read its memory, which holds other numbers, or none
        return torch.empty_strided(shape, strides, dtype=tangent.dtype, device=device).copy_(tangent)
    if tangent.stride() == strides:
        return tangent
    return restride(tangent, shape, strides)


def _check_unobserved(tangents: tuple[Any, ...]) -> None:
    """Raise where something would have to be shown the operations of the backward pass: kernels have none."""
    what = observer(tangents)
    if any(t is not None and t.layout is torch.strided and not torch._C._has_storage(t) for t in tangents):
        what = "vmap (is_grads_batched=True, vectorize=True)"
    if what and what != ANOMALY:  # an anomaly is one in what a node returns, and that autograd sees
        raise UnsupportedError(
            f"gradients of a compiled function are asked for while {what} is active, which sees none of it",
            code="training.observed",
            hints=("call the function itself while it is active, too: then it runs in eager",),
        )
