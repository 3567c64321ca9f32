"""`torch.cond` and `torch.while_loop`: the functions are evaluated, each into a graph of its own; the call is one node.

What a branch reads, its operands and what it closes over alike, is found as for any graph within the graph, and becomes
an operand of the node. A branch computes new tensors and does nothing else: where it writes, gives memory that it
was given, or changes an object, torch refuses it in eager, so the call breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx
import torch.utils._pytree as pytree

from intarsia_ir import meta
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import named
from intarsia_tensorcapture.ambient import autocast_state
from intarsia_tensorcapture.checkpoints import changed_from_before, updates_statistics
from intarsia_tensorcapture.described import tensors_in
from intarsia_tensorcapture.pytrees import Opaque, modelled, real_structure, tensor_leaves
from intarsia_tensorcapture.scopes import Scope
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["HANDLERS"]


class _Branch(NamedTuple):
    """An evaluated function.

    Args:
        scope: Its nodes, and what it reads from outside.
        results: Nodes of its results.
        fakes: Their values.
        leaves: What it returns, taken apart: a number for each tensor, other leaves as they are.
        structure: How they are put together.
        own: Inputs of the graph that are given to the function, not read from outside.
    """

    scope: Scope
    results: tuple[torch.fx.Node, ...]
    fakes: tuple[torch.Tensor, ...]
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec
    own: tuple[torch.fx.Node, ...] = ()


def _cond(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a call of `torch.cond`; one whose predicate is known is a call of that branch."""
    given = named("cond", args, keywords, ("pred", "true_fn", "false_fn", "operands"), 3)
    predicate, functions = given["pred"], [given["true_fn"], given["false_fn"]]
    operands = iteration.unpack(tx, given.get("operands", Tuple([])))
    if not isinstance(predicate, TensorValue):
        if not issubclass(predicate.type(), (bool, int, float)):
            raise Break("tracer.operation_raised", f"torch.cond is asked about {predicate.describe()}")
        return do.call(tx, functions[0 if do.truth(tx, predicate) else 1], operands, {})
    if any(type(size) is not int or size != 1 for size in predicate.fake.shape):
        raise Break("tracer.operation_raised", f"torch.cond is asked about {list(predicate.fake.shape)} elements")
    _refuse_modes(plugin, "torch.cond")
    node = plugin.scopes.here(predicate.node)
    first, second = (_evaluated(plugin, tx, "torch.cond", function, operands) for function in functions)
    _refuse_different(first, second)
    free = tuple(dict.fromkeys([*first.scope.free, *second.scope.free]))
    target = HigherOrderOp("cond", [_program(branch, free) for branch in (first, second)])
    return _recorded(plugin, tx, target, (node, *free), first, graded=_graded(free))


def _while_loop(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a call of `torch.while_loop`: both functions are given inputs of their own, one for each carried tensor."""
    name = "torch.while_loop"
    given = named("while_loop", args, keywords, ("cond_fn", "body_fn", "carried_inputs"), 3)
    carried: list[TensorValue] = []
    for value in iteration.unpack(tx, given["carried_inputs"]):
        dense = value if not isinstance(value, TensorValue) or _is_whole(value.fake) else _copied(plugin, tx, value)
        if not isinstance(dense, TensorValue):
            raise Break("tracer.call", f"{name} carries {value.describe()}: only tensors are, in a flat tuple")
        carried.append(dense)
    _refuse_modes(plugin, name)
    nodes = tuple([plugin.scopes.here(value.node) for value in carried])
    condition = _evaluated(plugin, tx, name, given["cond_fn"], (), carried)
    body = _evaluated(plugin, tx, name, given["body_fn"], (), carried)
    if condition.leaves != (0,) or any(type(size) is not int or size != 1 for size in condition.fakes[0].shape):
        raise Break("tracer.call", f"the condition of {name} gives something else than one tensor of one element")
    wanted, found = ([_described(fake) for fake in fakes] for fakes in ([v.fake for v in carried], body.fakes))
    if body.leaves != tuple(range(len(carried))) or wanted != found:
        raise Break("tracer.call", f"the body of {name} is given {', '.join(wanted)} and gives {', '.join(found)}")
    free = tuple(dict.fromkeys([*condition.scope.free, *body.scope.free]))
    programs = [_program(function, free) for function in (condition, body)]
    target = HigherOrderOp("while_loop", programs, {"carried": len(carried)})
    return _recorded(plugin, tx, target, (*nodes, *free), body, graded=_graded((*nodes, *free)))


HANDLERS: dict[Any, Any] = {torch.cond: _cond, torch.while_loop: _while_loop}


def _refuse_modes(plugin: Recording, name: str) -> None:
    if torch._C._are_functorch_transforms_active() or plugin.modes_active:
        raise Break("tracer.tensor_op", f"{name} is called inside of a torch.func transform, or under a mode")


def _copied(plugin: Recording, tx: Tracer, value: Value) -> Value:
    return plugin.record(tx, "call_method", "clone", [value], {})


def _input_like(plugin: Recording, scope: Scope, value: TensorValue) -> TensorValue:
    """Return an input of a function's graph that is like a tensor from outside."""
    node, fake = scope.add_input("arg"), _fresh(plugin, value.fake, value.fake.requires_grad)
    plugin.describe(node, fake)
    return TensorValue(plugin, node, fake)


def _evaluated(
    plugin: Recording,
    tx: Tracer,
    name: str,
    function: Value,
    operands: Sequence[Value],
    carried: Sequence[TensorValue] = (),
) -> _Branch:
    """Evaluate a function into a graph of its own, on operands or on inputs like the carried ones.

    Raises:
        Break: It does something else than to compute new tensors.
    """
    before = torch.is_grad_enabled(), autocast_state(), plugin.state.depth()
    mode, n_draws = plugin.sizes.mode, len(tx.effects.draws)
    earlier, mode.written = mode.written, {}
    try:
        with plugin.scopes.scope(tx) as scope, tx.effects.apart():
            own = [_input_like(plugin, scope, value) for value in carried]
            result = do.call(tx, function, [*operands, *own], {})
            changed = changed_from_before(tx.effects, [function, *operands])
            if changed is not None or n_draws != len(tx.effects.draws):
                what = "Python's random state" if changed is None else changed.describe()
                raise Break("tracer.mutation", f"a function of {name} changes {what}, which was there before")
            found = _results(plugin, tx, name, scope, result, own)
    except Raised as raised:
        what = f"{raised.value.type().__name__} is raised in a function of {name}"
        raise Break("tracer.call", what) from None
    finally:
        mode.written = {**earlier, **mode.written}
    if before != (torch.is_grad_enabled(), autocast_state(), plugin.state.depth()):
        raise Break("tracer.call", f"a function of {name} leaves a setting changed")
    return found


def _results(
    plugin: Recording, tx: Tracer, name: str, scope: Scope, result: Value, own: Sequence[TensorValue]
) -> _Branch:
    """Take apart what a function returns: tensors in memory of their own."""
    leaves, structure = pytree.tree_flatten(real_structure(tx, result))
    models = list(tensor_leaves(tx, result))
    nodes = [plugin.scopes.here(model.node) for model in models]
    outside = {_memory(x) for node in scope.free for x in tensors_in(meta.value(node))}
    outside |= {_memory(value.fake) for value in own}
    inputs = tuple([value.node for value in own])
    if not outside.isdisjoint(plugin.sizes.mode.written) or any(map(updates_statistics, scope.graph.nodes)):
        raise Break("tracer.mutation", f"a function of {name} writes a tensor that isn't its own")
    memory = [_memory(model.fake) for model in models]
    if not outside.isdisjoint(memory) or len({*memory}) < len(memory):
        raise Break("tracer.call", f"a function of {name} returns memory that it was given, or the same twice")
    for number, model in enumerate(models):
        if not _is_whole(model.fake):
            copied = _copied(plugin, tx, model)
            assert isinstance(copied, TensorValue)
            models[number], nodes[number] = copied, copied.node
    numbers = iter(range(len(models)))
    shown = tuple([next(numbers) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    return _Branch(scope, tuple(nodes), tuple([model.fake for model in models]), shown, structure, inputs)


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _is_whole(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is all that is in its memory, each element once."""
    size = tensor.numel() * tensor.element_size()
    nbytes = tensor.untyped_storage().nbytes()
    return bool(size == nbytes) if type(size) is int and type(nbytes) is int else str(size) == str(nbytes)


def _refuse_different(first: _Branch, second: _Branch) -> None:
    """Break where two branches don't give the same: torch refuses most of it, and strides must be known."""
    if first.structure != second.structure or not first.fakes:
        raise Break("tracer.call", "the branches of torch.cond give different structures, or no tensors")
    if [_constant(leaf) for leaf in first.leaves] != [_constant(leaf) for leaf in second.leaves]:
        raise Break("tracer.call", "the branches of torch.cond give different values beside their tensors")
    shown = [[_described(fake) for fake in branch.fakes] for branch in (first, second)]
    if shown[0] != shown[1]:
        pairs = next(pair for pair in zip(*shown, strict=True) if pair[0] != pair[1])
        raise Break("tracer.call", f"the branches of torch.cond give {pairs[0]} and {pairs[1]}")


def _constant(leaf: Any) -> Any:
    value = leaf.value if isinstance(leaf, Opaque) else leaf
    return (type(value.value), value.value) if isinstance(value, Const) else value


def _described(fake: torch.Tensor) -> str:
    strides = "" if fake.is_contiguous() else f" with strides {fake.stride()}"
    return f"{fake.dtype}[{', '.join(map(str, fake.shape))}] on {fake.device}{strides}"


def _program(branch: _Branch, free: Sequence[torch.fx.Node]) -> torch.fx.GraphModule:
    """Return the graph of a branch, with an input for each node outside that some branch reads."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for given in branch.own:
        copies[given] = graph.placeholder(given.name)
        copies[given].target = copies[given].name
        meta.set_origins(copies[given], meta.origins(given))
    for outer in free:
        node = graph.placeholder(outer.name)
        node.target = node.name
        meta.set_origins(node, meta.origins(outer))
        if outer in branch.scope.free:
            copies[branch.scope.free[outer]] = node
    for inner in branch.scope.graph.nodes:
        if inner.op != "placeholder":
            copies[inner] = graph.node_copy(inner, copies.__getitem__)
            meta.drop_value(copies[inner])
    graph.output(tuple([copies[node] for node in branch.results]))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _graded(operands: Sequence[torch.fx.Node]) -> bool:
    return any(x.requires_grad for node in operands for x in tensors_in(meta.value(node)))


def _recorded(
    plugin: Recording,
    tx: Tracer,
    target: HigherOrderOp,
    operands: tuple[torch.fx.Node, ...],
    like: _Branch,
    *,
    graded: bool,
) -> Value:
    """Record the node of a call, and return its model: tensors like those of a function."""
    fakes = tuple([_fresh(plugin, fake, graded) for fake in like.fakes])
    node = plugin.scopes.graph.call_function(target, operands)
    plugin.count()
    plugin.describe(node, fakes)
    made = plugin.result(tx, node, fakes, [])
    assert isinstance(made, Tuple)
    leaves = [made.items[leaf] if type(leaf) is int else leaf.value for leaf in like.leaves]
    return modelled(tx, pytree.tree_unflatten(leaves, like.structure), lambda leaf: leaf)


def _fresh(plugin: Recording, like: torch.Tensor, graded: bool) -> torch.Tensor:
    """Return a fake tensor in memory of its own; one that may have a gradient is no leaf."""
    with plugin.sizes.mode:
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        if graded and torch.is_grad_enabled() and (like.is_floating_point() or like.is_complex()):
            return made.requires_grad_().clone()
        return made
