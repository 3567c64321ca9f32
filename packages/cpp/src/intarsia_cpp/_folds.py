"""Accumulators of reductions: several vectors that are combined when the loop is done."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._ops import WIDTH, Rep, mask_type, number_text, vector, widened
from intarsia_loops.ops import FLOATS, identity_of
from intarsia_loops.program import index_value
from intarsia_loops.vectors.steps import Step

__all__ = ["Fold", "combine_text"]

_OPERATORS = {"sum": "+", "cumsum": "+", "prod": "*", "cumprod": "*", "any": "|", "all": "&"}
_LANE_FOLDS = {"sum": "fold_sum", "prod": "fold_prod", "any": "fold_or", "all": "fold_and"}


def combine_text(kind: str, dtype: str, a: str, b: str) -> str:
    """Return one step of a fold, as C text on vectors."""
    if kind in _OPERATORS:
        return f"{a} {_OPERATORS[kind]} {b}"
    return f"{'v' if dtype in FLOATS else 'i'}{kind}({a}, {b})"


@dataclass(frozen=True, slots=True)
class Fold:
    """The accumulators of one reducing step: `count` vectors called `acc<k>`.

    Args:
        context: The kernel.
        step: The reduction.
        name: C name of the array of accumulators.
        count: How many there are.
        used: C text of how many are used, where that is known at run time only; "": all.
    """

    context: Context
    step: Step
    name: str
    count: int
    used: str = ""

    @property
    def is_arg(self) -> bool:
        """Whether it looks for a position."""
        return self.step.kind in ("argmax", "argmin")

    @property
    def dtype(self) -> str:
        """Element type folded."""
        return self.step.body.dtype

    @property
    def ctype(self) -> str:
        """C type of one accumulator."""
        lanes = self.context.lanes
        return mask_type(32, lanes) if self.dtype == "b8" else vector(self.dtype, lanes)

    @property
    def identity(self) -> str:
        """C text of the neutral element."""
        kind = {"argmax": "max", "argmin": "min"}.get(self.step.kind, self.step.kind)
        if self.dtype == "b8":
            return "-1" if kind == "all" else "0"
        return number_text(identity_of(kind, self.dtype), self.dtype)

    def declare(self) -> list[str]:
        """Return the statements that start the accumulators."""
        start = f"bc<{self.ctype}>({self.identity})"
        lines = [f"{self.ctype} {self.name}[{self.count}];"]
        fill = f"{self.name}[u] = {start};"
        if self.is_arg:
            position = vector(self.step.counted, self.context.lanes)
            lines.append(f"{position} {self.name}_at[{self.count}];")
            fill += f" {self.name}_at[u] = bc<{position}>(-1);"
        return [*lines, self._each(fill)]

    def update(self, scope: Scope, rep: Rep, u: str, *, masked: bool) -> None:
        """Add the statement that folds one vector into accumulator `u`.

        Args:
            scope: Where.
            rep: The vector.
            u: C text of the number of the accumulator.
            masked: Whether lanes past the tail must not count: they do not when lanes are folded in the end.
        """
        masked = masked and scope.tail is not None
        if self.is_arg:
            self._update_position(scope, rep, u, masked)
            return
        if self.dtype == "b8":
            rep = widened(rep, 32, self.context.lanes)
        acc = f"{self.name}[{u}]"
        new = combine_text(self.step.kind, self.dtype, acc, rep.text)
        scope.lines.append(f"{acc} = lanes({scope.tail}, {new}, {acc});" if masked else f"{acc} = {new};")

    def _update_position(self, scope: Scope, rep: Rep, u: str, masked: bool) -> None:
        acc, at = f"{self.name}[{u}]", f"{self.name}_at[{u}]"
        lanes, x = self.context.lanes, scope.name(rep).text
        order = ">" if self.step.kind == "argmax" else "<"
        position = scope.value(index_value(self.step.position, self.step.counted))
        bits = 8 * WIDTH[self.dtype]
        unset = widened(Rep(f"({at} < 0)", "b8", mask_type(8 * WIDTH[self.step.counted], lanes)), bits, lanes).text
        better = f"({x} {order} {acc}) | {unset}"
        if self.dtype in FLOATS:
            better += f" | (({x} != {x}) & ({acc} == {acc}))"
        if masked:
            better = f"lanes({scope.tail}, {better}, {mask_type(bits, lanes)}{{}})"
        won = scope.name(Rep(better, "b8", mask_type(bits, lanes)))
        wide = widened(won, 8 * WIDTH[self.step.counted], lanes)
        scope.lines.append(f"{acc} = {won.text} ? {x} : {acc};")
        scope.lines.append(f"{at} = {wide.text} ? {position.text} : {at};")

    def start(self, total: str) -> list[str]:
        """Return the statements that declare second-level sums `total`, which keep what rounding takes from them."""
        zero = f"{total}[u] = {total}_error[u] = {self.ctype}{{}};"
        return [f"{self.ctype} {total}[{self.count}], {total}_error[{self.count}];", self._each(zero)]

    def flush(self, total: str) -> list[str]:
        """Return the statements that add the accumulators to `total` and start them again."""
        return [
            self._each(f"two_sum({total}[u], {total}_error[u], {self.name}[u]); {self.name}[u] = {self.ctype}{{}};")
        ]

    def take(self, total: str) -> list[str]:
        """Return the statements that make `total` the accumulators."""
        return [self._each(f"{self.name}[u] = corrected({total}[u], {total}_error[u]);")]

    def _each(self, statements: str) -> str:
        return f"for (int u = 0; u < {self.used or self.count}; u++) {{ {statements} }}"

    def vector(self, u: str) -> Rep:
        """Return accumulator `u` as the result of its lanes, where lanes are results."""
        if not self.is_arg:
            return Rep(f"{self.name}[{u}]", self.step.dtype, self.ctype)
        ctype = vector("i64", self.context.lanes)
        return Rep(f"cv<{ctype}>({self.name}_at[{u}])", "i64", ctype)

    def declare_parts(self, threads: int) -> list[str]:
        """Return the statements that declare the accumulators of all threads, called `<name>_all`."""
        lines = [f"{self.ctype} {self.name}_all[{threads * self.count}];"]
        if self.is_arg:
            lines.append(f"{vector(self.step.counted, self.context.lanes)} {self.name}_at_all[{threads * self.count}];")
        return lines

    def keep_part(self) -> list[str]:
        """Return the statements that put the accumulators of thread number `part` among those of all threads."""
        names = [self.name, f"{self.name}_at"] if self.is_arg else [self.name]
        return [self._each(" ".join(f"{n}_all[part*{self.count} + u] = {n}[u];" for n in names))]

    def join_parts(self, threads: int) -> list[str]:
        """Return the statements that make the accumulators of all threads ours again, in the order of threads."""
        if self.is_arg:
            position = vector(self.step.counted, self.context.lanes)
            return [
                f"const {self.ctype} *const {self.name} = {self.name}_all;",
                f"const {position} *const {self.name}_at = {self.name}_at_all;",
            ]
        new = combine_text(self.step.kind, self.dtype, f"{self.name}[u]", f"{self.name}_all[part*{self.count} + u]")
        return [
            f"{self.ctype} {self.name}[{self.count}];",
            self._each(f"{self.name}[u] = {self.name}_all[u];"),
            f"for (int part = 1; part < {threads}; part++) {self._each(f'{self.name}[u] = {new};')}",
        ]

    def result(self, parts: int = 1) -> str:
        """Return the folded number as C text: over the accumulators as a tree, then over the lanes.

        Args:
            parts: Threads whose accumulators of a search for a position lie one behind the other.
        """
        if self.is_arg:
            best = "true" if self.step.kind == "argmax" else "false"
            return f"arg_fold<{best}>({self.name}, {self.name}_at, {parts * self.count})"
        names = [f"{self.name}[{k}]" for k in range(self.count)]
        while len(names) > 1:
            pairs = zip(names[::2], names[1::2], strict=True)
            names = [f"({combine_text(self.step.kind, self.dtype, a, b)})" for a, b in pairs]
        return f"{self.lane_fold}({names[0]})"

    @property
    def lane_fold(self) -> str:
        """Primitive that folds the lanes of a vector."""
        kind = self.step.kind
        return _LANE_FOLDS.get(kind) or f"fold_{'' if self.dtype in FLOATS else 'i'}{kind}"

    def scalar_type(self) -> str:
        """Return the C type of `result()`."""
        if self.is_arg:
            return "i64"
        return "i32" if self.dtype == "b8" else vector(self.dtype, 1)[:-2]

    def broadcast(self, scalar: str) -> Rep:
        """Return the result, held in C variable `scalar`, in every lane."""
        ctype = vector("i64", self.context.lanes) if self.is_arg else self.ctype
        return Rep(f"bc<{ctype}>({scalar})", self.step.dtype, ctype)
