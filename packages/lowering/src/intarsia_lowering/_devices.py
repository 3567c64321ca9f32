"""Which side the values of a graph over the CPU and another device are on in its program.

Kernels read and write the device only, and what runs on the host are library calls. A value that the graph has on the
CPU is *carried* when only the device needs it, and has the same bits there: then the program has it on the device from
the start, and kernels may compute it.

    %i = aten.arange.default(4, device=cpu)          a kernel numbers elements
    %m = aten.lt.Scalar(%i, 2)                       may be fused with it
    %y = aten._to_copy.default(%m, device=cuda)      copies on the device
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.aten import device_of, host_nodes
from intarsia_lowering import views

__all__ = ["Devices"]

aten: Any = torch.ops.aten
CPU = torch.device("cpu")
ARRIVALS = frozenset({aten._to_copy.default, aten.copy.default})
SIZES = frozenset({aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default})


class Devices:
    """Where the nodes of a graph are computed, and where their values are.

    Args:
        gm: FX(aten) with a value on every node.

    Attributes:
        device: Where kernels run.
        carried: Nodes with values on the CPU that the program has on the device.

    Raises:
        UnsupportedError: The graph is over other devices (`aten.devices`).
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        self.device = device_of(gm)
        self._host = host_nodes(gm)
        self.carried: frozenset[fx.Node] = frozenset()
        if self.device != CPU:
            self.carried = _Carried(gm, self._host).nodes()

    def runs_on_host(self, node: fx.Node) -> bool:
        """Tell whether a call has to be a library call, because it reads or makes a tensor on the CPU."""
        if node not in self._host or node in self.carried:
            return False
        return not (node.target in ARRIVALS and _arrives(node, self.carried))

    def must_wait(self, node: fx.Node) -> bool:
        """Tell whether an asynchronous copy to the CPU has to be finished before the next call.

        Eager's caller knows to wait before reading. Here that is so for what only becomes one result; everything else
        is read, or copied into a result of its own, before anybody could have waited.
        """
        if not node.kwargs.get("non_blocking") or getattr(meta.value(node), "device", None) != CPU:
            return False
        users = list(node.users)
        if len(users) != 1 or users[0].op != "output":
            return True
        results: Any = users[0].args[0]
        return list(results).count(node) != 1

    def of(self, node: fx.Node) -> str | None:
        """Return the device that the node's value is on in the program, where it isn't the one that it has itself."""
        return str(self.device) if node in self.carried else None


class _Carried:
    """The largest set of nodes of which each is carried because its users are on the device, or carried themselves."""

    def __init__(self, gm: fx.GraphModule, host: frozenset[fx.Node]) -> None:
        self.gm, self.host = gm, host

    def nodes(self) -> frozenset[fx.Node]:
        nodes: set[fx.Node] = set()
        for node in self.gm.graph.nodes:  # operands first
            if self._may_be(node) and all(o in nodes or _is_size(o) for o in node.all_input_nodes):
                nodes.add(node)
        while refused := {n for n in nodes if not self._is_needed_on_device_only(n, nodes)}:
            nodes -= refused
            while refused := {n for n in nodes if any(o not in nodes for o in n.all_input_nodes if not _is_size(o))}:
                nodes -= refused
        return frozenset(nodes)

    def _may_be(self, node: fx.Node) -> bool:
        value = meta.value(node) if node.op != "output" else None
        if not isinstance(value, torch.Tensor) or value.device != CPU or not node.users:
            return False
        if node.op == "placeholder":
            return value.dim() == 0
        if node.op == "get_attr":
            return value.dim() == 0 or _is_literal(node)
        return node.op == "call_function" and _has_same_bits(node, value)

    def _is_needed_on_device_only(self, node: fx.Node, carried: set[fx.Node]) -> bool:
        return all(
            user in carried
            or (user.op == "call_function" and (user not in self.host or _is_size(user)))
            or (user.target in ARRIVALS and _arrives(user, carried))
            for user in node.users
        )


def _arrives(node: fx.Node, carried: Any) -> bool:
    """Tell whether a copy to the device finds everything there already."""
    value = meta.value(node)
    sources = [n for n in node.all_input_nodes if isinstance(meta.value(n), torch.Tensor)]
    return value.device != CPU and all(n in carried or meta.value(n).device != CPU for n in sources)


def _is_size(node: fx.Node) -> bool:
    return not isinstance(meta.value(node), torch.Tensor | tuple | list)


def _is_literal(node: fx.Node) -> bool:
    """Tell whether nobody can change an attribute: a literal of the program, or what was computed from some."""
    return str(node.target).startswith("_folded") or all(u.target is aten.lift_fresh_copy.default for u in node.users)


# ---- calls that give the same bits on every device ------------------------------------------------------------

_FILLED = (
    "empty.memory_format empty_like.default empty_strided.default eye.default eye.m full.default full_like.default "
    "new_empty.default new_full.default new_ones.default new_zeros.default ones.default ones_like.default "
    "scalar_tensor.default zeros.default zeros_like.default"
)
_MOVED = (
    "cat.default clone.default constant_pad_nd.default flip.default lift_fresh_copy.default repeat.default "
    "stack.default tril.default triu.default where.self masked_fill.Scalar"
)
_COMPARED = tuple(itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), ("Tensor", "Scalar")))
_LOGIC = "logical_and.default logical_or.default logical_xor.default logical_not.default bitwise_not.default"
_BITS = tuple(itertools.product(("bitwise_and", "bitwise_or", "bitwise_xor"), ("Tensor", "Scalar")))
_SAME = " ".join((_FILLED, _MOVED, _LOGIC, *(f"{name}.{kind}" for name, kind in (*_COMPARED, *_BITS))))
_INTEGERS = (
    "arange.default arange.start arange.start_step add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar "
    "neg.default abs.default"
)


def _overloads(names: str) -> frozenset[Any]:
    return frozenset(getattr(getattr(aten, name), kind) for name, kind in (n.split(".") for n in names.split()))


ALWAYS = _overloads(_SAME) | {overload for overload, row in views.TABLE.rows.items() if row.any_dtype}
OF_INTEGERS = _overloads(_INTEGERS)


def _has_same_bits(node: fx.Node, value: torch.Tensor) -> bool:
    if node.kwargs.get("pin_memory"):
        return False
    floats = value.is_floating_point() or value.is_complex()
    if node.target is aten._to_copy.default:
        source = meta.value(node.args[0])  # type: ignore[arg-type]
        return floats or not source.is_floating_point()
    return node.target in ALWAYS or (node.target in OF_INTEGERS and not floats)
