"""`pad_matmuls`: on a GPU, large products of half types get sizes that its tensor cores take at full speed.

    %1: [2048, 50257] = aten.mm.default(%x, %w)       %1: [768, 50264] = aten.constant_pad_nd.default(%w, [0, 7])
                                                      %2: [2048, 50264] = aten.mm.default(%x, %1)
                                                ->    %3: [2048, 50257] = aten.slice.Tensor(%2, 1, 0, 50257)
                                                      %4: [2048, 50257] = aten.clone.default(%3, memory_format=...)

Rows that start at odd addresses keep the library from its fast kernels: on an H100 the product above took 1685 us, and
576 us with what the padding and the copy cost.

Side conditions. All sizes known; a size is padded where it isn't a multiple of 16 bytes, and the product is large
enough for what is read and written besides. Law: the same values, but for the order of additions; the same strides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir import meta
from intarsia_ir.records import Machine, Target
from intarsia_rewrites._draft import Draft, can_leave

__all__ = ["pad_matmuls"]

HALF = (torch.bfloat16, torch.float16)
_OPS: Any = torch.ops.aten
ALIGNMENT = 16  # bytes
# below, a launch more costs what is gained
LEAST_FLOPS = 10**10
# of the most operations for each byte that a machine's matrix units and memory do at once, those for each byte that the
# padding reads and writes from which on it pays: where some size is odd, the library runs at a tenth of its peak, where
# all are even at a quarter
SHARES = (0.233, 0.801)


def pad_matmuls(
    gm: fx.GraphModule,
    *,
    target: Target,
    dtypes: Collection[torch.dtype] = HALF,
    least_flops: int = LEAST_FLOPS,
    intensity: tuple[float, float] | None = None,
    fuel: int | None = None,
    check: bool = True,
) -> fx.GraphModule:
    """Return `gm` with its large matrix products over padded operands.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        target: What the program is compiled for: its products are chosen where it has matrix units.
        dtypes: Element types of the products that are chosen.
        least_flops: Floating-point operations of the smallest product that is chosen.
        intensity: For each byte that the padding reads or writes a product must have so many operations: where some
            size is odd, and where all are even; None: what pays on the target.
        fuel: Number of products that may be changed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f16[2048, 768], %w: f16[768, 50257]) {
        ...   %0: f16[2048, 50257] = aten.mm.default(%x, %w)
        ...   return (%0,)
        ... }
        ... ''')
        >>> units = Target("cpu", measured=Target("cuda", "sm_90").machine)
        >>> padded = pad_matmuls(gm, target=units)
        >>> [tuple(meta.value(n).shape) for n in padded.graph.nodes if n.op == "call_function"]
        [(768, 50264), (2048, 50264), (2048, 50257), (2048, 50257)]
    """
    machine = target.machine
    if not machine.matrix_gflop_per_s and can_leave(fuel, check):
        return gm
    draft = Draft(gm, fuel, check)
    enough = intensity or _intensity(machine)
    for node in list(draft.graph.nodes) if machine.matrix_gflop_per_s else ():
        product = _product(node, target.device, dtypes)
        if product is not None and product.pays(least_flops, enough) and draft.burn("padded"):
            _pad(draft, product)
    return draft.finish()


def _intensity(machine: Machine) -> tuple[float, float]:
    """Return the operations for each byte from which on padding pays: with odd sizes, and with even ones."""
    odd, even = (share * machine.matrix_gflop_per_s / machine.gb_per_s for share in SHARES)
    return odd, even


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of an [m, k] and a [k, n] matrix.

    Args:
        node: The call: `mm`, or `addmm` of one more operand.
        sizes: m, k and n.
        pads: What each is short of a multiple of 16 bytes, where that matters.
        itemsize: Bytes of an element.
    """

    node: fx.Node
    sizes: tuple[int, int, int]
    pads: tuple[int, int, int]
    itemsize: int

    def pays(self, least_flops: int, intensity: tuple[float, float]) -> bool:
        """Tell whether the product gets faster by more than what padding its operands costs."""
        m, k, n = self.sizes
        flops, elements = 2 * m * k * n, 0
        for (one, other), size in zip(((0, 1), (1, 2), (0, 2)), (m * k, k * n, m * n), strict=True):
            elements += 2 * size if self.pads[one] or self.pads[other] else 0
        odd, even = intensity
        enough = (odd if any(pad % 2 for pad in self.pads) else even) * elements * self.itemsize
        return bool(elements) and flops >= max(least_flops, enough)


def _product(node: fx.Node, device: str, dtypes: Collection[torch.dtype]) -> _Product | None:
    if node.op != "call_function" or node.target not in (_OPS.mm.default, _OPS.addmm.default):
        return None
    a, b = (meta.value(x) for x in _factors(node))
    if not all(isinstance(v, FakeTensor) and v.device.type == device and v.dtype in dtypes for v in (a, b)):
        return None
    sizes = (*a.shape, b.shape[1])
    if not all(type(s) is int and s > 0 for s in (*sizes, *a.stride(), *b.stride())):
        return None
    step = ALIGNMENT // a.dtype.itemsize
    m, k, n = (-size % step for size in sizes)
    # the rows of the first factor matter only where they lie side by side in memory
    return _Product(node, sizes, (m if a.stride(1) != 1 else 0, k, n), a.dtype.itemsize)


def _factors(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    a, b = node.args[-2:]
    return a, b  # type: ignore[return-value]


def _pad(draft: Draft, product: _Product) -> None:
    """Replace a product by one over padded operands."""
    node, (m, k, n) = product.node, product.pads
    a, b = _factors(node)
    a, b = _padded(draft, node, a, m, k), _padded(draft, node, b, k, n)
    args: tuple[Any, ...] = (a, b)
    if node.target is _OPS.addmm.default:
        args = (_padded_bias(draft, product), a, b)
    padded = _call(draft, node, node.target, args, node.kwargs)
    for dim, pad in ((0, m), (1, n)):
        if pad:
            padded = _call(draft, node, _OPS.slice.Tensor, (padded, dim, 0, meta.value(node).shape[dim]))
    if m or n:
        padded = _call(draft, node, _OPS.clone.default, (padded,), {"memory_format": torch.contiguous_format})
    draft.replace(node, padded)


def _padded(draft: Draft, user: fx.Node, x: fx.Node, rows: int, columns: int) -> fx.Node:
    if not rows and not columns:
        return x
    pads = [0, columns, 0, rows] if rows else [0, columns]
    return _call(draft, user, _OPS.constant_pad_nd.default, (x, pads))


def _padded_bias(draft: Draft, product: _Product) -> fx.Node:
    bias, (m, _, n) = product.node.args[0], product.pads
    shape: Any = meta.value(bias).shape  # type: ignore[arg-type]
    columns = n if shape and shape[-1] > 1 else 0
    return _padded(draft, product.node, bias, m if len(shape) == 2 and shape[0] > 1 else 0, columns)  # type: ignore[arg-type]


def _call(draft: Draft, user: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
    """Insert a call before `user`, with its origins."""
    return draft.insert_computed(user, target, args, dict(kwargs or {}), user)
