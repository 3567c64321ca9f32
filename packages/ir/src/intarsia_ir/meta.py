"""Typed access to `fx.Node.meta`. No other module of Intarsia spells a meta key.

`val` is torch's own convention: the fake tensor, symbolic number, or tuple of them, that the node produces.
`origins` is ours: where in the user's program the node comes from. Graphs made by other front ends carry
`stack_trace` instead; `origins` reads that as well. `phase` and `region` are ours and optional: which part of a
training step a node belongs to, and which marked region (such as a checkpointed one) it was recorded in. `kept` is
ours too: autograd's own formulas keep the memory of the value for the backward pass. So is `given`: what a placeholder
stood for in the call that was captured.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx
from torch.utils.weak import TensorWeakRef

from intarsia_ir.records import Origin

__all__ = [
    "copy_origins",
    "drop_value",
    "front_end_description",
    "front_end_phase",
    "front_end_value",
    "function_of",
    "given",
    "has_value",
    "is_kept",
    "merge_origins",
    "origins",
    "phase",
    "region",
    "set_given",
    "set_kept",
    "set_origins",
    "set_phase",
    "set_region",
    "set_value",
    "value",
]

_TORCH = os.path.dirname(torch.__file__)
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>\S+)')


def value(node: fx.Node) -> Any:
    """Return what `node` produces, as a fake tensor, number, or nested tuple of these.

    Raises:
        KeyError: The node carries no value.
    """
    return node.meta["val"]


def has_value(node: fx.Node) -> bool:
    """Tell whether `value(node)` exists."""
    return "val" in node.meta


def front_end_value(node: fx.Node, default: Any = None) -> Any:
    """Return what torch.compile's front end says of a placeholder: a fake tensor or symbolic number, else `default`."""
    return node.meta.get("example_value", default)


def front_end_description(node: fx.Node) -> Any:
    """Return what AOTAutograd says that an input is, or of the output node what each output is; None: nothing."""
    return node.meta.get("desc")


def front_end_phase(node: fx.Node) -> str:
    """Return the part of a training step that AOTAutograd says a node of a joint graph belongs to."""
    return "backward" if node.meta.get("partitioner_tag") == "is_backward" else "forward"


def set_value(node: fx.Node, val: Any) -> None:
    """Set what `node` produces."""
    node.meta["val"] = val


def drop_value(node: fx.Node) -> None:
    """Forget what `node` produces."""
    node.meta.pop("val", None)


def origins(node: fx.Node) -> tuple[Origin, ...]:
    """Return the user lines that `node` comes from, oldest first; empty when unknown."""
    origins_of_node = node.meta.get("origins")
    if origins_of_node is not None:
        return tuple(origins_of_node)
    trace = node.meta.get("stack_trace")
    frames = _FRAME.findall(trace) if trace else []
    if not frames:
        return ()
    # innermost, outside of torch and generated code: an exported program's traces go on into its modules
    file, line, function = next(
        (frame for frame in reversed(frames) if not frame[0].startswith((_TORCH, "<"))), frames[-1]
    )
    return (Origin(file, int(line), function, node.name),)


def function_of(gm: fx.GraphModule) -> str:
    """Return the qualified name of the function that the first call of a graph comes from, "" when unknown."""
    origins_of_nodes = (origins(node) for node in gm.graph.nodes if node.op != "placeholder")
    return next((lines[0].function for lines in origins_of_nodes if lines), "")


def set_origins(node: fx.Node, where: Iterable[Origin]) -> None:
    """Set the user lines that `node` comes from."""
    node.meta["origins"] = tuple(where)


def merge_origins(*nodes: fx.Node) -> tuple[Origin, ...]:
    """Return the origins of all `nodes`, without repeats, in order of first appearance."""
    return tuple(dict.fromkeys(o for node in nodes for o in origins(node)))


def copy_origins(source: fx.Node, target: fx.Node) -> None:
    """Give `target` the origins of `source`."""
    set_origins(target, origins(source))


def phase(node: fx.Node) -> str:
    """Return the part of a training step that `node` was recorded in: `"forward"` unless set otherwise."""
    return str(node.meta.get("phase", "forward"))


def set_phase(node: fx.Node, name: str) -> None:
    """Set the part of a training step that `node` was recorded in."""
    node.meta["phase"] = name


def region(node: fx.Node) -> tuple[str, int] | None:
    """Return `(kind, number)` of the innermost marked region that `node` was recorded in, or None."""
    mark: tuple[str, int] | None = node.meta.get("region")
    return mark


def set_region(node: fx.Node, kind: str, number: int) -> None:
    """Set the marked region that `node` was recorded in."""
    node.meta["region"] = (kind, number)


def is_kept(node: fx.Node) -> bool:
    """Tell whether autograd's own formulas keep the memory of `node`'s value for the backward pass."""
    return bool(node.meta.get("kept", False))


def set_kept(node: fx.Node) -> None:
    """Note that autograd's own formulas keep the memory of `node`'s value for the backward pass."""
    node.meta["kept"] = True


def given(node: fx.Node) -> Any:
    """Return the tensor or number that a placeholder stood for when it was captured; None: unknown, or gone by now."""
    operands = node.meta.get("given")
    return operands() if isinstance(operands, TensorWeakRef) else operands  # type: ignore[no-untyped-call]


def set_given(node: fx.Node, real: Any) -> None:
    """Note the tensor or number that a placeholder stands for; a tensor isn't kept alive by it."""
    node.meta["given"] = TensorWeakRef(real) if isinstance(real, torch.Tensor) else real  # type: ignore[no-untyped-call]
