"""Bodies of loops: values (DAGs of scalar ops) become C++ statements on vectors.

A `Scope` is a place in the text: the inside of some loops. Where the walk says that values are hoisted, they are
written into the outermost scope that has the loop variables they depend on; else where they are used. Every statement
defines a new name, and a value is computed once per scope.
"""

from __future__ import annotations

from collections.abc import Iterable

from intarsia_cpp._context import Context
from intarsia_cpp._ops import WIDTH, Rep, constant, expression, mask_bits, vector, widened
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.program import Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.narrow import is_saturated
from intarsia_loops.vectors.reads import reading

__all__ = ["Scope"]


class Scope:
    """A place in the text that statements are added to.

    Args:
        context: The kernel being emitted.
        parent: The scope around this one; its text comes before.
        axes: Loop variables that this scope has and its parent has not.
        lane: The loop variable that runs over the lanes of a vector, if there is one.
        tail: C expression of the number of lanes in use; None: all.
        barrier: Nothing moves above this scope, because it may not run at all.

    Attributes:
        lines: The statements so far.
        known: Buffer -> register, for values that loops around or steps before have made.
        lanes: Elements of the vectors that its values are.
    """

    def __init__(
        self,
        context: Context,
        parent: Scope | None = None,
        axes: Iterable[Atom] = (),
        lane: Atom | None = None,
        tail: str | None = None,
        barrier: bool = False,
    ) -> None:
        self.context = context
        self.parent = parent
        self.own_axes = frozenset(axes)
        self.lane: Atom | None = lane if lane is not None or parent is None else parent.lane
        self.tail: str | None = tail if tail is not None or parent is None else parent.tail
        self.barrier = barrier
        self.lines: list[str] = []
        self.known: dict[str, Rep] = {}
        self.lanes = context.lanes
        self._single: Scope | None = None
        self._values: dict[Val, Rep] = {}
        self._homes: dict[Val, Scope] = {}

    def value(self, body: Val) -> Rep:
        """Return the register that holds `body` at the current point, writing statements as needed."""
        for v in self._ordered(body):
            home = self._home(v)
            if v not in home._values:
                home._values[v] = home._write(v, [self._find(a) for a in self._operands(v)])
        return self._find(body)

    def _ordered(self, body: Val) -> list[Val]:
        """The values that become vectors here, operands first: all but what only says where a whole vector is read."""
        values = list(postorder(body))
        if not any(v.op == "gather" and self._is_one_place(v) for v in values):
            return values
        wanted = {body}
        for v in reversed(values):
            if v in wanted:
                wanted.update(self._operands(v))
        return [v for v in values if v in wanted]

    def _operands(self, v: Val) -> tuple[Val, ...]:
        return () if v.op == "gather" and self._is_one_place(v) else operands(v)

    def _is_one_place(self, gather: Val) -> bool:
        """Whether a data-dependent read has one position for all lanes, which memory holds: a number, not a vector."""
        moving = gather.args[1][0]
        if self.lane is not None and self.lane in self.context.axes_of(moving):
            return False
        return all(self._register(u.args[0]) is None for u in moving.loads)

    def _alone(self) -> Scope:
        """This place, for numbers that are the same in all lanes: vectors of one element."""
        if self._single is None:
            above = None if self.parent is None else self.parent._alone()
            single = Scope(self.context, above, self.own_axes, barrier=self.barrier)
            single.lane, single.tail, single.lanes = None, None, 1
            single.lines, single._single = self.lines, single
            self._single = single
        return self._single

    def give(self, load: Val, rep: Rep) -> None:
        """Make a load that belongs here known, as what a register holds."""
        self._values[load] = rep

    def name(self, rep: Rep) -> Rep:
        """Return the value under a name of its own."""
        if rep.text.isidentifier():
            return rep
        name = self.context.temp()
        self.lines.append(f"const {rep.ctype} {name} = {rep.text};")
        return Rep(name, rep.dtype, rep.ctype)

    def store(self, buffer: str, address: IndexExpr, rep: Rep) -> None:
        """Write a value to element number `address` of a buffer (a local array counts as one)."""
        pointer = self.context.pointer(buffer)
        lanes = self.lanes
        if rep.dtype == "b8":
            rep = self.name(Rep(f"(u8x{lanes})({widened(rep, 8, lanes).text} & 1)", "u8", f"u8x{lanes}"))
        walk = self._walk(address)
        if walk is ZERO:
            self.lines.append(f"{pointer}[{self.context.c(address)}] = {self.name(rep).text}[0];")
        elif walk is ONE:
            target = f"{pointer} + {self.context.c(address)}"
            whole = self.tail is None or self.context.is_padded(buffer, address, self.lane)
            self.lines.append(f"st({target}, {rep.text});" if whole else f"stt({target}, {rep.text}, {self.tail});")
        else:
            self.each_lane(f"{pointer}[{self.lane_address(address)}] = {self.name(rep).text}[l];")

    # ---- where a value lives ----

    def _home(self, v: Val) -> Scope:
        """Where `v` is computed: here, or hoisted to the outermost scope that has everything it depends on."""
        if not self.context.manner.hoist:
            return self
        found = self._homes.get(v)
        if found is None:
            scope: Scope = self
            while scope.parent is not None and not scope.barrier and not scope._needs(v):
                scope = scope.parent
            found = self._homes[v] = scope
        return found

    def _needs(self, v: Val) -> bool:
        if self.own_axes & self.context.axes_of(v):
            return True
        return bool(self.known) and any(u.args[0] in self.known for u in v.loads)

    def _find(self, v: Val) -> Rep:
        return self._home(v)._values[v]

    # ---- statements ----

    def _write(self, v: Val, args: list[Rep]) -> Rep:
        lanes = self.lanes
        if v.op == "const":
            return constant(v.args[0], v.dtype, lanes)
        if v.op == "load":
            return self._load(v)
        if v.op == "gather":
            return self._gather(v, args)
        if v.op == "index":
            return self._index(v)
        if v.op == "cast" and (wide := _rounded(v)) is not None:
            return self.name(Rep(f"rounded_bf16({self._find(wide).text})", "f32", vector("f32", lanes)))
        return self.name(expression(v.op, v.dtype, self._fitted(v, args), lanes))

    def _fitted(self, v: Val, args: list[Rep]) -> list[Rep]:
        """Operands with masks brought to the width that the op needs."""
        lanes = self.lanes
        if v.op == "where":
            bits = 8 * WIDTH[v.dtype] if v.dtype != "b8" else max(mask_bits(a) for a in args)
            wide = args if v.dtype == "b8" else args[:1]
            return [self.name(widened(a, bits, lanes)) for a in wide] + args[len(wide) :]
        if v.op in ("and", "or", "xor") and v.dtype == "b8":
            bits = max(mask_bits(a) for a in args)
            return [self.name(widened(a, bits, lanes)) for a in args]
        return args

    def _load(self, v: Val) -> Rep:
        register = self._register(v.args[0])
        return register if register is not None else self.read(v, self.context.pointer(v.args[0]), v.args[1][0])

    def _gather(self, v: Val, args: list[Rep]) -> Rep:
        """A data-dependent read; where only the part of the address that isn't data moves with the lanes, a load."""
        moving, fixed = v.args[1]
        pointer = self.context.pointer(v.args[0])
        position = self.name(args[0] if args else self._alone().value(moving)).text
        if not args or self.lane is None or self.lane not in self.context.axes_of(moving):
            return self.read(v, f"{pointer} + {position}[0]", fixed)
        element = f"{pointer}[{position}[l] + {self.lane_address(fixed)}]"
        return self._from_memory(self._by_lane(vector(v.dtype, self.lanes), element), v.dtype)

    def read(self, v: Val, pointer: str, address: IndexExpr) -> Rep:
        """Return the elements from `pointer + address` on, as far apart as the lanes move it."""
        context, ctype = self.context, vector(v.dtype, self.lanes)
        where = f"{pointer} + {context.c(address)}"
        found = reading(address, self.lane, self.lanes, gather=context.manner.gather)
        match found.kind:
            case "one":
                text = f"bc<{ctype}>(*({where}))"
            case "neighbours":
                whole = self.tail is None or context.is_padded(v.args[0], address, self.lane)
                text = f"ld<{ctype}>({where})" if whole else f"ldt<{ctype}>({where}, {self.tail})"
            case "apart":
                text = f"strided<{ctype}>({where}, {context.c(found.step)}, {self.tail or self.lanes})"
            case _:
                at_once = None if found.remainder is None else self._at_once(ctype, where, found.remainder)
                text = self._by_lane(ctype, f"({pointer})[{self.lane_address(address)}]", at_once)
        return self._from_memory(text, v.dtype)

    def _at_once(self, ctype: str, where: str, remainder: Atom) -> tuple[str, str]:
        """A load of neighbours, and when it may stand for one of each lane: unless a remainder wraps in between."""
        first, size = self.context.c(lift(remainder)), self.context.c(remainder.b)
        load = f"ld<{ctype}>({where})" if self.tail is None else f"ldt<{ctype}>({where}, {self.tail})"
        return f"{first} + {self.tail or self.lanes} <= {size}", load

    def _from_memory(self, text: str, dtype: str) -> Rep:
        lanes = self.lanes
        if dtype == "b8":
            return self.name(Rep(f"({text} != 0)", "b8", f"i8x{lanes}"))
        return self.name(Rep(text, dtype, vector(dtype, lanes)))

    def _index(self, v: Val) -> Rep:
        (expr,) = v.args
        ctype = vector(v.dtype, self.lanes)
        walk, wide = self._walk(expr), is_saturated(expr, v.dtype)
        if walk is ZERO:
            return self.name(Rep(f"bc<{ctype}>({self._saturated(self.context.c(expr), wide)})", v.dtype, ctype))
        if wide and (walk is None or walk.const() is None or abs(walk.const() or 0) > 1 << 20):
            return self.name(Rep(self._by_lane(ctype, f"saturated({self.lane_address(expr)})"), v.dtype, ctype))
        if walk is not None:
            step = "" if walk is ONE else f" * bc<{ctype}>({self.context.c(walk)})"
            first = self._saturated(self.context.c(expr), wide)
            return self.name(Rep(f"bc<{ctype}>({first}) + iota<{ctype}>(){step}", v.dtype, ctype))
        return self.name(Rep(self._by_lane(ctype, self.lane_address(expr)), v.dtype, ctype))

    @staticmethod
    def _saturated(text: str, wide: bool) -> str:
        return f"saturated({text})" if wide else text

    def _register(self, buffer: str) -> Rep | None:
        scope: Scope | None = self
        while scope is not None:
            if buffer in scope.known:
                return scope.known[buffer]
            scope = scope.parent
        return None

    # ---- lanes ----

    def _walk(self, expr: IndexExpr) -> IndexExpr | None:
        """What one lane adds to `expr`; None when that isn't the same for every lane."""
        return ZERO if self.lane is None else lane_step(expr, self.lane, self.lanes)

    def lane_address(self, expr: IndexExpr) -> str:
        """Return an index expression at lane `l`, as C text."""
        assert self.lane is not None
        lane = axis("l", self.lanes)
        return self.context.c(expr.subst({self.lane: lift(self.lane) + lift(lane)}))

    def each_lane(self, statement: str) -> None:
        """Add a statement for each lane `l` in use, in order."""
        self.lines.append(f"for (int l = 0; l < {self.tail or self.lanes}; l++) {statement}")

    def _by_lane(self, ctype: str, text: str, at_once: tuple[str, str] | None = None) -> str:
        """The name of a vector filled lane by lane, or at once where a condition holds; lanes past the tail are 0."""
        name = self.context.temp()
        self.lines.append(f"{ctype} {name}{{}};")
        if at_once is not None:
            self.lines.append(f"if ({at_once[0]}) {name} = {at_once[1]};")
            self.lines.append("else")
        self.each_lane(f"{name}[l] = {text};")
        return name


def _rounded(v: Val) -> Val | None:
    """Return the f32 value that `v`, a cast to f32, rounds to bfloat16, or None: its 16 bits aren't wanted."""
    narrow = v.args[0]
    if v.dtype != "f32" or narrow.op != "cast" or narrow.dtype != "bf16" or narrow.args[0].dtype != "f32":
        return None
    return narrow.args[0]  # type: ignore[no-any-return]
