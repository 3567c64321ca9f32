"""From any FX graph of torch calls to the torch dialect: modules inlined, parameters lifted, outputs flat.

    call_module lin(x)         ->  linear(x, lin_weight, lin_bias), with two new placeholders
    get_attr weight            ->  a placeholder at the end, one per tensor (tied parameters stay one)
    output {"a": y, "b": [z]}  ->  output (y, z), with the nesting in `Signature.output_tree`

A module is inlined by tracing its `forward` symbolically. Where that depends on values (an `if` on a size, say), the
call becomes one `ModuleCall`, which runs the module itself with the lifted tensors: same meaning, one node.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.utils import _pytree as pytree

from intarsia_ir import meta
from intarsia_ir._fx import attribute, placeholders, wrap
from intarsia_ir.records import (
    ArgumentSource,
    AttributeSource,
    Constant,
    Fresh,
    InputSpec,
    OutputSpec,
    Role,
    Signature,
    Source,
)

__all__ = ["ModuleCall", "Normalised", "normalise"]


@dataclass(frozen=True, slots=True)
class Normalised:
    """A graph in the torch dialect, what its inputs and results mean, and the tensors that were lifted.

    Args:
        graph_module: FX(torch).
        signature: The lifted inputs come after the user's, with their source below `self`.
        lifted: The tensors of the lifted inputs, in order.
    """

    graph_module: fx.GraphModule
    signature: Signature
    lifted: tuple[torch.Tensor, ...]


def normalise(gm: fx.GraphModule) -> Normalised:
    """Return `gm` in the torch dialect.

    `interpret(n.graph_module, *inputs, *n.lifted)` gives the flat results of `gm(*inputs)`. The graph is bound to the
    Python state that the modules have now, such as `training`.

    Args:
        gm: A graph that may call modules, read parameters, and nest its output.

    Example:
        >>> n = normalise(fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())))
        >>> [spec.name for spec in n.signature.inputs]
        ['input_1', 'l_0_weight', 'l_0_bias']
    """
    lifter = _Lifter(gm)
    # an exported module reads its parameters before its inputs
    for node in sorted(gm.graph.nodes, key=lambda node: node.op != "placeholder"):
        lifter.copy(node)
    return lifter.finish()


class ModuleCall:
    """A module as a function of its tensors: `call(*tensors, *args, **kwargs)`, the tensors in the order of `names`.

    Args:
        module: The module; it is only read.
        names: Dotted names of its parameters and buffers.
    """

    def __init__(self, module: torch.nn.Module, names: tuple[str, ...]) -> None:
        self.module = module
        self.names = names
        self.__name__ = f"call_{type(module).__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's forward with the given tensors in place of its own."""
        tensors, rest = args[: len(self.names)], args[len(self.names) :]
        clone = _with_tensors(self.module, dict(zip(self.names, tensors)))
        result = clone(*rest, **kwargs)
        for original, name, value in _changes(self.module, clone):
            original.__dict__[name] = value
        return result


_STORES = ("_parameters", "_buffers", "_modules")


def _changes(module: torch.nn.Module, clone: torch.nn.Module) -> list[tuple[torch.nn.Module, str, Any]]:
    """Return the plain attributes that running `clone` has set: (module of the original tree, name, value)."""
    changes = [
        (module, name, value)
        for name, value in vars(clone).items()
        if name not in _STORES and vars(module).get(name, _STORES) is not value
    ]
    for child, submodule in module._modules.items():
        below = clone._modules.get(child)
        if submodule is not None and below is not None:
            changes += _changes(submodule, below)
    return changes


def _with_tensors(module: torch.nn.Module, tensors: dict[str, Any]) -> torch.nn.Module:
    """Return a copy of the tree of modules that holds `tensors`; everything else is shared."""
    clone = copy.copy(module)
    clone.__dict__ = dict(module.__dict__)
    for store in _STORES:
        clone.__dict__[store] = dict(module.__dict__[store])
    for name, tensor in tensors.items():
        if "." not in name:
            store = "_parameters" if name in clone._parameters else "_buffers"
            clone.__dict__[store][name] = tensor
    # not named_children(): it leaves out the second name of a shared child
    for child, submodule in module._modules.items():
        if submodule is None:
            continue
        below = {n.partition(".")[2]: t for n, t in tensors.items() if n.partition(".")[0] == child and "." in n}
        clone.__dict__["_modules"][child] = _with_tensors(submodule, below)
    return clone


class _Lifter:
    """Builds the new graph: user placeholders first, lifted tensors after them, then everything else."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, Any] = {}
        self.inputs: list[InputSpec] = []
        self.lifted: dict[int, tuple[fx.Node, torch.Tensor]] = {}
        self.outputs: tuple[OutputSpec, ...] = ()
        self.output_tree: Any = None

    def copy(self, node: fx.Node) -> None:
        """Copy one node of the given graph."""
        match node.op:
            case "placeholder":
                self.copies[node] = self.placeholder(str(node.target))
                self.copies[node].meta = dict(node.meta)
                self.inputs.append(InputSpec(self.copies[node].name, requires_grad=_requires_grad(node)))
            case "get_attr":
                self.copies[node] = self.attribute(str(node.target))
            case "call_module":
                self.copies[node] = self.module(node)
            case "output":
                self.output(node)
            case _:
                self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
                self.copies[node].meta = dict(node.meta)

    def placeholder(self, name: str) -> fx.Node:
        """Add an input after the inputs there are."""
        existing = placeholders(self.graph)
        if not existing:
            first = next(iter(self.graph.nodes), None)
            with self.graph.inserting_before(first) if first is not None else self.graph.inserting_after(None):
                return self.graph.placeholder(name)
        with self.graph.inserting_after(existing[-1]):
            return self.graph.placeholder(name)

    def attribute(self, path: str) -> Any:
        """Lift a tensor; keep a nested graph; anything else is a constant."""
        value = attribute(self.gm, path)
        if isinstance(value, torch.Tensor):
            return self.lift(path, value)
        if isinstance(value, torch.nn.Module):
            return self.graph.create_node("get_attr", path)
        return value

    def lift(self, path: str, tensor: torch.Tensor) -> fx.Node:
        """Return the input that stands for `tensor`, a new one the first time."""
        if id(tensor) not in self.lifted:
            # names that start with a digit (Sequential's children) are no identifiers
            name = "_".join(part if part.isidentifier() else f"l_{part}" for part in path.split("."))
            node = self.placeholder(name)
            if isinstance(tensor, torch.nn.Parameter):
                role = Role.PARAMETER
            else:
                role = Role.BUFFER
            self.lifted[id(tensor)] = (node, tensor)
            self.inputs.append(InputSpec(node.name, role, _source(path), requires_grad=tensor.requires_grad))
        return self.lifted[id(tensor)][0]

    def module(self, node: fx.Node) -> Any:
        """Inline the forward of the module that a node calls, or call the module as a function of its tensors."""
        path = str(node.target)
        module: torch.nn.Module = attribute(self.gm, path)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.copies.__getitem__)
        traced = _trace(module, node)
        if traced is not None:
            return self.inline(traced, path, module, node, args, kwargs)
        # tied tensors are listed under each of their names: every place must get the tensor that is passed
        tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
        tensors.update(module.named_buffers(remove_duplicate=False))
        lifted = [self.lift(f"{path}.{name}", tensor) for name, tensor in tensors.items()]
        call = self.graph.call_function(ModuleCall(module, tuple(tensors)), (*lifted, *args), kwargs)
        call.meta = dict(node.meta)
        return call

    def inline(
        self, traced: fx.Graph, path: str, module: torch.nn.Module, node: fx.Node, args: Any, kwargs: Any
    ) -> Any:
        """Copy the nodes of `traced`, its placeholders replaced by the arguments of the call."""
        bound = _bind(traced, args, kwargs)
        for inner in traced.nodes:
            if inner.op == "placeholder":
                continue
            if inner.op == "output":
                return fx.node.map_arg(inner.args[0], bound.__getitem__)
            if inner.op == "get_attr":
                bound[inner] = self.attribute(f"{path}.{inner.target}")
            else:
                bound[inner] = self.graph.node_copy(inner, bound.__getitem__)
                meta.copy_origins(node, bound[inner])
        return None

    def output(self, node: fx.Node) -> None:
        """Flatten the output; constants leave the graph, equal nodes share a result."""
        value = fx.node.map_arg(node.args[0], self.copies.__getitem__)
        leaves, self.output_tree = pytree.tree_flatten(_plain(value))
        results = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, fx.Node)))
        self.outputs = tuple(
            Fresh(results.index(leaf)) if isinstance(leaf, fx.Node) else Constant(leaf) for leaf in leaves
        )
        new = self.graph.output(tuple(results))
        new.meta = {key: item for key, item in node.meta.items() if key != "val"}

    def finish(self) -> Normalised:
        """Wrap the graph."""
        signature = Signature(tuple(self.inputs), self.outputs, output_tree=self.output_tree)
        tensors = tuple(tensor for _, tensor in self.lifted.values())
        return Normalised(wrap(self.gm, self.graph), signature, tensors)


class _InliningTracer(fx.Tracer):
    """Traces through every submodule; buffers are proxies, so that writing one is a node and not done at once."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return False


def _trace(module: torch.nn.Module, node: fx.Node) -> fx.Graph | None:
    """Return the graph of a module's forward, or None where its Python depends on values or sets attributes."""
    if _has_hooks(module):
        return None
    subject = _with_tensors(module, {})
    if hasattr(module, "_check_input_dim"):
        # normalisation modules first look at the rank of their input; look here, then leave it out of the trace
        value = node.args[0] if node.args else None
        if not isinstance(value, fx.Node) or not meta.has_value(value):
            return None
        check: Any = module._check_input_dim
        check(meta.value(value))
        subject.__dict__["_check_input_dim"] = _nothing
    try:
        graph = _InliningTracer().trace(subject)
    except (fx.proxy.TraceError, TypeError):
        return None
    set_by_forward = [name for _, name, value in _changes(module, subject) if value is not _nothing]
    return None if set_by_forward else graph


def _nothing(value: Any) -> None:
    """Stands for a check that has been made."""


def _has_hooks(module: torch.nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def _bind(traced: fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[fx.Node, Any]:
    """Map each placeholder of a traced forward to what the call gives for it."""
    bound: dict[fx.Node, Any] = {}
    for position, node in enumerate(placeholders(traced)):
        name = str(node.target).lstrip("*")
        if position < len(args):
            bound[node] = args[position]
        else:
            bound[node] = kwargs[name] if name in kwargs else node.args[0]
    return bound


def _requires_grad(node: fx.Node) -> bool:
    value = meta.value(node) if meta.has_value(node) else None
    return isinstance(value, torch.Tensor) and value.requires_grad


def _source(path: str) -> Source:
    source: Source = ArgumentSource("self")
    for name in path.split("."):
        source = AttributeSource(source, name)
    return source


def _plain(value: Any) -> Any:
    """Replace FX's immutable containers by plain ones, which pytree knows."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if type(value) is tuple:
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
