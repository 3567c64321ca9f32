"""The text of extern calls: statements of a generated function that call one ATen overload each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.aten import effects, form_of, in_place, written_operands
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_loops.called import Called
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Buffer, Condition, Extern, Program, TensorRef
from intarsia_loops.shown import Shown
from intarsia_runtime._calls import check_custom_result, check_result, copy, refuse, restride
from intarsia_runtime._names import Names
from intarsia_runtime._refs import RefWriter, shape_text, size_text
from intarsia_runtime.relied import KeptResult, is_whole

__all__ = ["MAY_RETURN_OPERAND", "ExternCall"]

# Python bindings of these take the overload's arguments unchanged and cost 1.5 us less than the overload object.
DIRECT = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "convolution", "embedding", "_scaled_dot_product_flash_attention_for_cpu"}
)
# Namespaces of operators whose results are known to be as predicted.
_TORCHS = frozenset(
    {"aten", "prims", "quantized", "torchvision", "_c10d_functional", "c10d", "intarsia_p2p", "higher_order"}
)
# Returns its operand itself when it isn't training.
MAY_RETURN_OPERAND = frozenset({"aten.native_dropout.default"})


class ExternCall:
    """Text of one call of an ATen overload.

    Args:
        item: The call.
        names: Names of the function being written.
        refs: Writes its tensor operands.
        used: Results that something reads.
        sizes: Size symbols that nothing before it gives: they are read from its results.
        ending: Operands in memory of their own that nothing reads afterwards.
        kept: Result whose size nothing relies on -> what is called where it isn't as predicted; None: nothing is.
    """

    def __init__(
        self,
        item: Extern,
        names: Names,
        refs: RefWriter,
        used: Set[str],
        sizes: Sequence[Shown] = (),
        ending: Set[str] = frozenset(),
        kept: Mapping[str, KeptResult | None] = MappingProxyType({}),
    ) -> None:
        self.item, self.names, self.refs, self.sizes, self.ending = item, names, refs, sizes, ending
        is_torchs = getattr(item.target, "namespace", "aten") in _TORCHS
        self.kept = kept if is_torchs else {}  # a fake of the user's is wrong for whoever else reads it
        read = {*used, *(shown.name for shown in sizes)}
        self.outs = tuple(name if name in read else "" for name in item.outs)

    def lines(self, program: Program | Called) -> list[str]:
        """Return the statements that make the call and give every used result the layout of its buffer."""
        if self.item.target is torch.ops.aten._assert_scalar.default:  # of numbers: Python compares faster than ATen
            condition, message = map(self._argument, self.item.args)
            return [f"if not {condition}: {self.names.bind('_refuse', refuse)}({message})"]
        arguments = [self._argument(a) for a in self.item.args]
        arguments += [f"{name}={self._argument(a)}" for name, a in self.item.kwargs]
        call = f"{self._in_place(program) or self._function()}({', '.join(arguments)})"
        used = [name for name in self.outs if name]
        if not used:
            return [call]
        targets = self._targets()
        lines = [f"{targets} = {call}"]
        if "_" in targets.replace(",", " ").split():
            lines.append("del _")  # what nothing reads would stay until the next call
        for shown in self.sizes:
            if shown.kind != "itself":
                numbers = "shape" if shown.kind == "size" else "stride()"
                lines.append(f"{shown.symbol} = {self.names.local(shown.name)}.{numbers}[{shown.dim}]")
        for name in used:
            if name in program.buffers:
                lines += self._layout(name, program.buffers[name])
        return lines

    def _function(self) -> str:
        target = self.item.target
        if isinstance(target, HigherOrderOp):  # two of one name may hold other tensors
            return self.names.bind(f"_{target.name}{len(self.names.bound)}", target.launcher())
        name = str(target).removeprefix("aten.").removesuffix(".default")
        binding = getattr(torch._C._VariableFunctions, name, target) if name in DIRECT else target
        return self.names.bind("_" + str(target).replace(".", "_"), binding)

    def _in_place(self, program: Program | Called) -> str:
        """Return the name of what writes operands that nothing else needs; "" where there are none.

        Others are copied, since a call may be run again in eager, and an operator does to a tensor what it likes.
        """
        op = form_of(self.item.target)
        if op is None:
            return ""
        everything = [ref.buffer for ref in self.item.refs()]
        operands = enumerate(written_operands(op, self.item.args, dict(self.item.kwargs)))
        kept = frozenset(
            place
            for place, ref in operands
            if ref.buffer in self.ending and everything.count(ref.buffer) == 1 and is_whole(ref, program)
        )
        name = f"_{op}_{'_'.join(map(str, sorted(kept)))}".replace(".", "_")
        return self.names.bind(name, in_place(op, kept)) if kept else ""

    def _argument(self, value: Any) -> str:
        if isinstance(value, TensorRef):
            return self.refs.tensor(value)
        if isinstance(value, IndexExpr):
            return size_text(value)
        if isinstance(value, Condition):
            return f"{size_text(value.left)} {value.op} {size_text(value.right)}"
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self._argument, value))}]"
        return self.names.literal(value)

    def _targets(self) -> str:
        """Return the left side of the assignment: one name, or a name or `_` for each position of the result."""
        returns = self.item.target._schema.returns
        outs = iter(self.outs)
        if len(returns) == 1 and not _is_list(returns[0]):
            return self.names.local(next(outs))
        if len(returns) == 1:
            return "".join(f"{self._target(name)}, " for name in outs).rstrip()
        if len(self.outs) == len(returns):
            return ", ".join(map(self._target, outs))
        # outs has no entry for results that aren't tensors
        return ", ".join(self._target(next(outs, "")) if _is_tensor(r) else "_" for r in returns)

    def _target(self, name: str) -> str:
        return self.names.local(name) if name else "_"

    def _layout(self, out: str, buffer: Buffer) -> list[str]:
        name = self.names.local(out)
        shape, strides = shape_text(buffer.shape), shape_text(buffer.strides)
        lines = []
        if _may_alias(self.item.target):
            lines.append(f"{name} = {self.names.bind('_copy', copy)}({name})")
        self.names.bind("_restride", restride)
        check = self._check(out)
        dtype = self.names.bind(f"_{buffer.dtype}", dtype_from_name(buffer.dtype))
        # kernels read it as what was predicted, so a wrong prediction must never reach one
        lines.append(f"if {name}.dtype is not {dtype} or {name}.shape != {shape}: {check}({name}, {shape}, {dtype})")
        lines.append(f"elif {name}.stride() != {strides}: {name} = _restride({name}, {shape}, {strides})")
        return lines

    def _check(self, out: str) -> str:
        """Return the name of what raises for a result that isn't as predicted, where something relies on it."""
        target = self.item.target
        if out in self.kept:
            return self.names.bind(f"_kept_{self.names.local(out)}", self.kept[out] or _let_through)
        if getattr(target, "namespace", "aten") in _TORCHS:
            return self.names.bind("_check_result", check_result)
        check = partial(check_custom_result, str(target).removesuffix(".default"))
        return self.names.bind("_check_" + str(target).replace(".", "_"), check)


def _let_through(value: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Take any size, as only library calls get the result; of another type they would compute something else."""
    if value.dtype is not dtype:
        check_result(value, shape, dtype)


def _is_list(returned: Any) -> bool:
    return isinstance(returned.type, torch.ListType)


def _is_tensor(returned: Any) -> bool:
    kind = returned.type
    if isinstance(kind, torch.OptionalType):
        kind = kind.getElementType()
    return isinstance(kind, torch.TensorType)


def _may_alias(target: Any) -> bool:
    if isinstance(target, HigherOrderOp):
        inner = [node.target for program in target.programs for node in program.graph.nodes]
        return any(str(t) in MAY_RETURN_OPERAND or (isinstance(t, HigherOrderOp) and _may_alias(t)) for t in inner)
    return str(target) in MAY_RETURN_OPERAND or bool(effects(target).views)
