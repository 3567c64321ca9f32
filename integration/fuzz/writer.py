"""Hypothesis writes programs: a module with a function `f`, helpers, and the steps that call it.

Every program has one meaning in CPython, mostly without an exception, and ends: loops are bounded by constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from integration.fuzz.grammar import EVENTS, EXPRESSIONS, PARAMETERS, PRELUDE, RAISES, STATEMENTS, STATEMENTS_IN_LOOPS

__all__ = ["programs"]

_BYTES = 3000
_TOKEN = re.compile(r"\$\(((?:[^()]|\([^()]*\))*)\)|([$@&])([a-zA-Z])(\d?)\b|#")
_GLOBALS = ("counter", "ratio", "flag", "weight", "table")
_DEFAULTS = {
    "i": "2",
    "f": "0.5",
    "s": "'ab'",
    "l": "[1, 2]",
    "d": "{'a': 1}",
    "q": "{1}",
    "p": "(1, 2)",
    "o": "Base(1)",
    "r": "Pair(T(2), 1)",
    "t": "T(2)",
    "v": "torch.ones(3)",
    "j": "J(2)",
    "k": "T(2) > 0",
    "L": "[T(2)]",
    "D": "{'x': T(2)}",
    "m": "net",
}
_HELPERS = ((("i", "t", "l"), "t"), (("i", "o", "d"), "i"))


@st.composite
def programs(draw: Callable[[Any], Any], statements: int = 6, depth: int = 2, steps: int = 4) -> str:
    """Return a strategy for the source of a module that defines `f`, `PARAMETERS` and `STEPS`.

    Args:
        draw: Given by Hypothesis.
        statements: Largest number of statements at the top of `f`.
        depth: How deep blocks nest.
        steps: Number of calls; the first is made twice.
    """
    # one draw of many bytes: as random as it gets, and a hundred times faster than a draw a choice
    stream = iter(draw(st.binary(min_size=_BYTES, max_size=_BYTES)))
    writer = Writer(lambda n: next(stream, 0) % n)
    helpers = [writer.helper(number, kinds, gives) for number, (kinds, gives) in enumerate(_HELPERS)]
    names: dict[str, list[str]] = {kind: [] for kind in EXPRESSIONS}
    for parameter in PARAMETERS:
        names[parameter[0]].append(parameter)
    scope = Scope(names, set(PARAMETERS))
    body = ["kept = []"]
    for _ in range(2 + writer.below(statements - 1)):
        body += writer.statement(scope, depth, in_loop=False)
    results = [writer.pick(scope.names[kind]) for kind in "ittvlLDdo" if scope.names[kind]]
    body.append(f"return {', '.join(dict.fromkeys(results))}, kept")
    head = f"def f({', '.join(PARAMETERS)}, *rest, k1=3, **kw):"
    function = [head, *_indent([*_declarations(body, set()), *body])]
    calls = [writer.first_step(), ("pass", "pass"), *(writer.further_step() for _ in range(steps - 2))]
    plan = ["STEPS = [", *(f"    {call!r}," for call in calls), "]"]
    tail = [f"PARAMETERS = {list(PARAMETERS)!r}", *plan]
    return "\n".join([PRELUDE, *helpers, *function, "", *tail, ""])


@dataclass
class Scope:
    """The variables of a function.

    Args:
        names: Kind -> variables that can be read.
        own: Variables that are the function's own; others need a declaration to be assigned.
    """

    names: dict[str, list[str]]
    own: set[str] = field(default_factory=set)

    def nested(self) -> Scope:
        """Return a block's copy: what it adds isn't seen after it."""
        return Scope({kind: list(names) for kind, names in self.names.items()}, self.own)


class Writer:
    """Writes pieces of a program; `below(n)` makes every choice."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below
        self.numbers = 0
        self.calls: dict[str, list[str]] = {}

    def pick(self, items: Sequence[Any]) -> Any:
        """Choose one of several."""
        return items[self.below(len(items))]

    def helper(self, number: int, kinds: Sequence[str], gives: str) -> str:
        """Write a module-level function; from then on expressions may call it."""
        # mutable defaults are shared by all calls, as in anybody's program
        further = {kind: text for kind, text in _DEFAULTS.items() if kind not in kinds}
        names = {kind: [kind + ("0" if kind in kinds else "9")] for kind in EXPRESSIONS if kind != "b"}
        parameters = [*(kind + "0" for kind in kinds), *(f"{kind}9={text}" for kind, text in further.items())]
        scope = Scope(names, {p.split("=")[0] for p in parameters})
        body = ["kept = log"]
        for _ in range(1 + self.below(3)):
            body += self.statement(scope, 1, in_loop=False, returns=False)
        body.append(f"return {self.expression(gives, scope, 1)}")
        arguments = ", ".join("@" + kind for kind in kinds)
        self.calls.setdefault(gives, []).extend([f"h{number}({arguments})"] * 3)
        lines = [f"def h{number}({', '.join(parameters)}):", *_indent([*_declarations(body, set()), *body]), ""]
        return "\n".join(lines)

    # -- steps ---------------------------------------------------------------------------------------------------

    def first_step(self) -> tuple[str, str]:
        """Write the first call: every argument is made."""
        rows = str(self.pick((2, 2, 3, 1)))
        return "pass", "\n".join(f"{name} = {self._argument(name, rows)}" for name in PARAMETERS)

    def further_step(self) -> tuple[str, str]:
        """Write a later call: a change of state, some new arguments, else the objects of the call before."""
        rows = str(self.pick((2, 2, 3, 4)))
        names = list(PARAMETERS)
        chosen = {self.pick(names) for _ in range(self.below(4))}
        lines = [f"{name} = {self._argument(name, rows)}" for name in names if name in chosen]
        return str(self.pick(EVENTS)), "\n".join(lines) or "pass"

    def _argument(self, name: str, rows: str) -> str:
        return str(self.pick(PARAMETERS[name])).replace("$n", rows)

    # -- code ----------------------------------------------------------------------------------------------------

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        """Write an expression of a kind."""
        if depth <= 0 or self.below(4) == 0:
            if kind == "b":
                return f"{self.expression('i', scope, 0)} $(< > ==) 1".replace("$(< > ==)", self.pick(("<", ">", "==")))
            if kind == "i" and self.below(3) == 0:
                return str(self.below(6) - 1)
            return str(self.pick(scope.names[kind]))
        templates = EXPRESSIONS[kind] + self.calls.get(kind, [])
        text = self.fill(str(self.pick(templates)), scope, depth - 1, {})
        return text if text.isidentifier() or text.isdecimal() else f"({text})"

    def fill(self, template: str, scope: Scope, depth: int, tags: dict[str, str]) -> str:
        """Replace the tokens of a template."""

        def token(match: re.Match[str]) -> str:
            words, mark, kind, tag = match.groups()
            if match[0] == "#":
                return tags["#"]
            if words is not None:
                return self.fill(str(self.pick(words.split())), scope, depth, tags)
            if mark == "$":
                return self.expression(kind, scope, depth)
            if tag and kind + tag in tags:
                return tags[kind + tag]
            name = self._target(kind, scope) if mark == "&" else str(self.pick(scope.names[kind]))
            if tag:
                tags[kind + tag] = name
            return name

        return _TOKEN.sub(token, template)

    def _target(self, kind: str, scope: Scope) -> str:
        known = scope.names[kind]
        own = [name for name in known if name in scope.own]
        if own and (len(known) > 4 or self.below(2)):
            return str(self.pick(own))
        self.numbers += 1
        return f"{kind}_{self.numbers}"

    def statement(self, scope: Scope, depth: int, *, in_loop: bool, returns: bool = True) -> list[str]:
        """Write one statement as lines."""
        if in_loop and self.below(4) == 0:
            template = str(self.pick(STATEMENTS_IN_LOOPS))
        else:
            groups = _WEIGHTED if depth > 0 else _WEIGHTED_FLAT
            template = str(self.pick(STATEMENTS[self.pick(groups)][1]))
        if not returns and template.startswith("if $b: return"):
            template = "pass"
        self.numbers += 1
        tags = {"#": str(self.numbers)}
        lines: list[str] = []
        for line in template.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in self._line(line.strip(), scope, depth, in_loop, returns, tags)]
        _bind(lines, scope)
        return lines

    def _line(
        self, line: str, scope: Scope, depth: int, in_loop: bool, returns: bool, tags: dict[str, str]
    ) -> list[str]:
        match line:
            case "$block" | "$body":
                inner = scope.nested()
                in_loop = in_loop or line == "$body"
                count = 1 + self.below(2 + depth)
                return [
                    t for _ in range(count) for t in self.statement(inner, depth - 1, in_loop=in_loop, returns=returns)
                ]
            case "$scope":
                inner = Scope(scope.nested().names, set())
                body = [
                    t for _ in range(1 + self.below(2)) for t in self.statement(inner, 0, in_loop=False, returns=False)
                ]
                known = {name for names in scope.names.values() for name in names}
                return [*_declarations(body, known), *body]
            case "$raise":
                return [self.fill(str(self.pick(RAISES)), scope, 1, tags)]
        text = self.fill(line, scope, 2, tags)
        # a target is known to the lines after it
        _bind([text if not text.endswith(":") else text + " pass"], scope)
        return [text]


_WEIGHTED = [name for name, (weight, _) in STATEMENTS.items() for _ in range(weight)]
_COMPOUND = ("branch", "loop", "attempt", "context", "closure", "match")
_WEIGHTED_FLAT = [name for name in _WEIGHTED if name not in _COMPOUND]


def _indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


class _Stores(ast.NodeVisitor):
    """Collects the names that a function body assigns, leaving out the functions in it."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.declared: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_Nonlocal(self, node: ast.Nonlocal | ast.Global) -> None:
        self.declared.update(node.names)

    visit_Global = visit_Nonlocal

    def visit_FunctionDef(self, node: ast.AST) -> None:
        return None

    visit_Lambda = visit_ClassDef = visit_FunctionDef

    def visit_ListComp(self, node: ast.AST) -> None:
        self.names.update(n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp


def _stores(lines: Sequence[str]) -> set[str]:
    """Return the names assigned by lines of a function body."""
    try:
        tree = ast.parse("while 1:\n" + "\n".join(_indent(lines)))
    except SyntaxError:
        return set()  # a line of a compound statement on its own, such as `else:`
    found = _Stores()
    found.visit(tree)
    return found.names - found.declared


def _declarations(body: Sequence[str], outer: set[str]) -> list[str]:
    """Return the global and nonlocal statements that a function body needs."""
    stored = _stores(["def body():", *_indent(body)]) or _stores(body)
    free = sorted(stored & outer)
    shared = sorted(stored & set(_GLOBALS))
    return ([f"nonlocal {', '.join(free)}"] if free else []) + ([f"global {', '.join(shared)}"] if shared else [])


_NAME = re.compile(r"([a-zA-Z])(_\d+|\d)\Z")


def _bind(lines: Sequence[str], scope: Scope) -> None:
    """Make the variables that lines assign known."""
    for name in sorted(_stores(lines)):
        match = _NAME.match(name)
        if match and match[1] in scope.names and name not in scope.names[match[1]]:
            scope.names[match[1]].append(name)
            scope.own.add(name)
