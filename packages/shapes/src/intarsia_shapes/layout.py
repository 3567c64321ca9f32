"""Layout questions that torch's C++ side asks a node: contiguity, channels-last, density.

Each takes `sizes` and `strides` as lists of nodes and answers with a node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
from sympy import S
from torch.utils._sympy.functions import IsNonOverlappingAndDenseIndicator, Max

if TYPE_CHECKING:
    from intarsia_shapes.env import ShapeEnv
    from intarsia_shapes.node import SymNode

__all__ = ["LayoutQuestions"]

Nodes = Sequence["SymNode"]
LAST_2D, LAST_3D = (1, 3, 2, 0), (1, 4, 3, 2, 0)


class LayoutQuestions:
    """The part of a node that answers questions about a whole tensor; the node itself is only the way in."""

    shape_env: ShapeEnv
    wrap_bool: Callable[[bool], SymNode]
    wrap_int: Callable[[int], SymNode]

    def is_contiguous(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Row-major?"""
        return self._packed(sizes, strides, tuple(range(len(sizes) - 1, -1, -1)))

    def is_channels_last_contiguous_2d(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Dense in the order N, H, W, C?"""
        return self._packed(sizes, strides, LAST_2D)

    def is_channels_last_contiguous_3d(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Dense in the order N, D, H, W, C?"""
        return self._packed(sizes, strides, LAST_3D)

    def is_channels_last_strides_2d(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Strides ascending in the order C, W, H, N?"""
        return self._ascending(sizes, strides, LAST_2D)

    def is_channels_last_strides_3d(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Strides ascending in the order C, W, H, D, N?"""
        return self._ascending(sizes, strides, LAST_3D)

    def is_non_overlapping_and_dense(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """Dense in some order of dimensions?"""
        env = self.shape_env
        key = ("dense", tuple(sizes), tuple(strides), env.knowledge.version)
        return env.remember(key, lambda: self._dense(sizes, strides))

    def is_non_overlapping_and_dense_indicator(self, sizes: Nodes, strides: Nodes) -> SymNode:
        """The same as a number, 0 or 1."""
        expr = IsNonOverlappingAndDenseIndicator(*(s.expr for s in sizes), *(s.expr for s in strides))
        hints = _hints(sizes, strides)
        return self.shape_env.node(expr, int, None if hints is None else int(_dense_hint(*hints)))

    def _packed(self, sizes: Nodes, strides: Nodes, order: tuple[int, ...]) -> SymNode:
        if len(sizes) != len(order):
            return self.wrap_bool(False)
        key = ("packed", tuple(sizes), tuple(strides), order)
        return self.shape_env.remember(key, lambda: self._packed_node(sizes, strides, order))

    def _packed_node(self, sizes: Nodes, strides: Nodes, order: tuple[int, ...]) -> SymNode:
        size, stride = [s.expr for s in sizes], [s.expr for s in strides]
        parts, expected = [], S.One
        for d in order:
            parts.append(sympy.Or(_equal(size[d], S.One), _equal(stride[d], expected)))
            expected = expected * size[d]
        expr = sympy.Or(sympy.And(*parts), *(_equal(s, S.Zero) for s in size))
        hints = _hints(sizes, strides)
        return self.shape_env.node(expr, bool, None if hints is None else _packed_hint(*hints, order))

    def _ascending(self, sizes: Nodes, strides: Nodes, order: tuple[int, ...]) -> SymNode:
        if len(sizes) != len(order):
            return self.wrap_bool(False)
        key = ("ascending", tuple(sizes), tuple(strides), order)
        return self.shape_env.remember(key, lambda: self._ascending_node(sizes, strides, order))

    def _ascending_node(self, sizes: Nodes, strides: Nodes, order: tuple[int, ...]) -> SymNode:
        size = [sympy.sympify(s.expr) for s in sizes]
        stride = [sympy.sympify(s.expr) for s in strides]
        expr = sympy.And(*_ascending_parts(size, stride, order, sympy.Ne, sympy.Ge, Max))
        hints = _hints(sizes, strides)
        hint = None if hints is None else all(_ascending_parts(*hints, order, operator.ne, operator.ge, max))
        return self.shape_env.node(expr, bool, hint)

    def _dense(self, sizes: Nodes, strides: Nodes) -> SymNode:
        env, hints = self.shape_env, _hints(sizes, strides)
        if hints is None:
            packed = self.is_contiguous(sizes, strides)
            if env.knowledge.decide(packed.expr) is True:
                return self.wrap_bool(True)
        elif _dense_hint(*hints):
            # the order of dimensions that the hints suggest; if it is provable, no guard is needed
            order = sorted(range(len(sizes)), key=lambda d: (hints[1][d], -d))
            parts, expected = [], S.One
            for d in order:
                if hints[0][d] != 1:
                    parts.append(_equal(strides[d].expr, expected))
                    expected = expected * sizes[d].expr
            if env.knowledge.decide(sympy.And(*parts)) is True:
                return self.wrap_bool(True)
        indicator = self.is_non_overlapping_and_dense_indicator(sizes, strides)
        result: SymNode = indicator.eq(self.wrap_int(1))
        return result


def _ascending_parts(
    size: list[Any], stride: list[Any], order: tuple[int, ...], unequal: Any, at_least: Any, larger: Any
) -> list[Any]:
    parts, least = [unequal(stride[1], 0)], 0
    for d in order:
        parts += [unequal(size[d], 0), at_least(stride[d], least)]
        if d == 0:
            # N after all others: a stride equal to C's would make N and C ambiguous
            parts.append(unequal(least, stride[1]))
        least = stride[d] * larger(size[d], 1)
    return parts


def _hints(sizes: Nodes, strides: Nodes) -> tuple[list[int], list[int]] | None:
    size, stride = [s.hint for s in sizes], [s.hint for s in strides]
    return None if None in size or None in stride else (size, stride)


def _packed_hint(size: list[int], stride: list[int], order: tuple[int, ...]) -> bool:
    expected = 1
    for d in order:
        if size[d] != 1 and stride[d] != expected and 0 not in size:
            return False
        expected *= size[d]
    return True


def _dense_hint(size: list[int], stride: list[int]) -> bool:
    if 0 in size:
        return True
    expected = 1
    for step, n in sorted(zip(stride, size, strict=True)):
        if n != 1:
            if step != expected:
                return False
            expected *= n
    return True


def _equal(a: Any, b: Any) -> Any:
    return sympy.true if a == b else sympy.Eq(a, b)
