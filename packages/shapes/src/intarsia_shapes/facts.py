"""Frozen facts: what recording learnt, as plain data that later passes may ask and guards check."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir.errors import NeedsFact
from intarsia_ir.records import SizeFact, SizeFacts
from intarsia_shapes.env import ShapeEnv
from intarsia_shapes.expressions import expression_of
from intarsia_shapes.intervals import INF
from intarsia_shapes.knowledge import Knowledge
from intarsia_shapes.marks import check_marks
from intarsia_shapes.names import symbol_named
from intarsia_shapes.node import SymTypes
from intarsia_shapes.pyexpr import python_text

__all__ = ["FrozenEnv", "check_source", "describe_facts", "facts_behind", "freeze", "join_facts", "promises_behind"]


def freeze(env: ShapeEnv) -> SizeFacts:
    """Return what `env` holds, immutable and JSON-serialisable.

    A symbol that several places share is read at the first; `s0_1`, `s0_2`, ... are the others, with the facts that
    they are equal. `t0`, `t1`, ... are strides that must be the products of sizes that they were.

    Example:
        >>> env = ShapeEnv()
        >>> n = env.create_size(6, "x.size(0)")
        >>> bool(n > 4)
        True
        >>> freeze(env).facts[0].relation
        '(s0 > 4)'
    """
    symbols: dict[str, str] = {}
    facts = [SizeFact(python_text(g.expr), g.origin) for g in env.guards]
    for symbol, sources in env.sources.items():
        symbols[symbol.name] = sources[0]
        for position, other in enumerate(sources[1:], 1):
            symbols[f"{symbol.name}_{position}"] = other
            facts.append(SizeFact(f"{symbol.name}_{position} == {symbol.name}"))
    for position, (source, expr) in enumerate(env.strides.items()):
        symbols[f"t{position}"] = source
        facts.append(SizeFact(f"t{position} == {python_text(expr)}"))
    return SizeFacts(
        symbols=symbols,
        ranges={s.name: _ends(*env.knowledge.ranges[s]) for s in (*env.sources, *env.unbacked_integers())},
        facts=tuple(dict.fromkeys(facts)),
        hints={s.name: int(v) for s, v in env.backed_var_to_val.items()},
    )


def describe_facts(facts: SizeFacts) -> list[str]:
    """Return a line for each symbol and each relation, to read.

    Example:
        >>> facts = SizeFacts({"s0": "x.size(0)"}, {"s0": (2, None)}, (SizeFact("s0 % 2 == 0"),), {"s0": 6})
        >>> describe_facts(facts)
        ['size s0 = x.size(0), at least 2, now 6', 'size fact: s0 % 2 == 0']
    """
    lines = []
    for name, source in facts.symbols.items():
        low, high = facts.ranges.get(name, (None, None))
        bounds = [f", at least {low}"] * (low is not None) + [f", at most {high}"] * (high is not None)
        hint = [f", now {facts.hints[name]}"] if name in facts.hints else []
        lines.append("".join([f"size {name} = {source}", *bounds, *hint]))
    return lines + [f"size fact: {f.relation}" + (f" at {f.origin}" if f.origin else "") for f in facts.facts]


def facts_behind(values: Iterable[Any], *, close: bool = False) -> SizeFacts:
    """Return what the environment behind fake tensors or symbolic numbers holds now; nothing without one of ours.

    Args:
        values: Fake tensors, symbolic numbers, and anything else.
        close: The environment may learn nothing from now on: a question that it can't answer raises `NeedsFact`.

    Raises:
        InvalidArgumentError: It is more than a mark promised.
    """
    env = _env_behind(values)
    if env is None:
        return SizeFacts()
    check_marks(env)
    env.closed = env.closed or close
    return freeze(env)


def promises_behind(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the text of what marks promised of sizes of fake tensors or symbolic numbers: place, size, bounds."""
    env = _env_behind(values)
    promises = env.promises if env is not None else ()
    return tuple(
        f"{source} {size.node._expr if isinstance(size, torch.SymInt) else size} {low} {high}"
        for source, size, low, high in promises
    )


def _env_behind(values: Iterable[Any]) -> ShapeEnv | None:
    for value in values:
        env = value.fake_mode.shape_env if isinstance(value, FakeTensor) else None
        if isinstance(value, SymTypes):
            env = value.node.shape_env
        if isinstance(env, ShapeEnv):
            return env
    return None


def join_facts(*many: SizeFacts) -> SizeFacts:
    """Return the facts of several passes over the same symbols; ranges are intersected."""
    ranges: dict[str, tuple[int | None, int | None]] = {}
    for name, (low, high) in ((n, r) for f in many for n, r in f.ranges.items()):
        old_low, old_high = ranges.get(name, (None, None))
        lows, highs = [v for v in (low, old_low) if v is not None], [v for v in (high, old_high) if v is not None]
        ranges[name] = (max(lows, default=None), min(highs, default=None))
    return SizeFacts(
        symbols={n: s for f in many for n, s in f.symbols.items()},
        ranges=ranges,
        facts=tuple(dict.fromkeys(fact for f in many for fact in f.facts)),
        hints={n: h for f in many for n, h in f.hints.items()},
    )


def check_source(facts: SizeFacts, argument_names: tuple[str, ...]) -> str:
    """Return Python source of `check(*arguments) -> bool`: whether the facts hold for these arguments."""
    lines = [f"def check({', '.join(argument_names)}):"]
    lines += [f"    {name} = {source}" for name, source in facts.symbols.items()]
    for name, (low, high) in facts.ranges.items():
        if name not in facts.symbols:  # the program makes it
            continue
        lines += [f"    if {name} < {low}: return False"] if low is not None else []
        lines += [f"    if {name} > {high}: return False"] if high is not None else []
    lines += [f"    if not ({fact.relation}): return False  # {fact.origin or 'equal sizes'}" for fact in facts.facts]
    return "\n".join((*lines, "    return True", ""))


class FrozenEnv:
    """Answers questions from frozen facts, and never learns.

    Args:
        facts: From `freeze` or `join_facts`.

    Example:
        >>> env = FrozenEnv(SizeFacts(symbols={"s0": "x.size(0)"}, ranges={"s0": (8, None)}))
        >>> env.holds("s0 >= 4")
        True
        >>> env.holds("s0 % 2 == 0")
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.NeedsFact: the recorded size facts don't decide s0 % 2 == 0 ...
    """

    def __init__(self, facts: SizeFacts) -> None:
        self.facts = facts
        names = {*facts.symbols, *facts.ranges}
        self._symbols = {n: symbol_named(n) for n in sorted(names)}
        self._knowledge = Knowledge()
        for name, (low, high) in facts.ranges.items():
            self._knowledge.narrow(self._symbols[name], -INF if low is None else low, INF if high is None else high)
        for fact in facts.facts:
            relation = _parse(fact.relation, self._symbols)
            if relation is not None:
                self._knowledge.learn(relation)

    def holds(self, relation: str) -> bool:
        """Tell whether a relation over symbol names holds at every call that passes the guards.

        Raises:
            NeedsFact: The facts don't decide it.
        """
        expr = _parse(relation, self._symbols)
        answer = None if expr is None else self._knowledge.decide(expr)
        if answer is None:
            raise NeedsFact(relation)
        return bool(answer)


def _parse(text: str, symbols: Mapping[str, Any]) -> Any:
    """Return a relation as a SymPy expression, or None when it speaks of something other than symbols."""
    try:
        return expression_of(ast.parse(text, mode="eval").body, symbols)
    except KeyError:
        return None


def _ends(low: float, high: float) -> tuple[int | None, int | None]:
    return (None if low == -INF else int(low)), (None if high == INF else int(high))
