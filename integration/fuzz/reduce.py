"""Makes a failing program small: as long as it fails, statements go, and blocks replace their statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

__all__ = ["reduce"]

_FUNCTIONS = ("f", "h0", "h1")


def reduce(source: str, fails: Callable[[str], bool], budget: int = 400) -> str:
    """Return a smaller program for which `fails` still holds.

    Args:
        source: A program for which it holds.
        fails: Runs a program.
        budget: Largest number of runs.
    """
    tree = ast.parse(source)
    changed = True
    while changed and budget > 0:
        changed = False
        for number in range(10_000):
            smaller = _edit(tree, number)
            if smaller is None or budget <= 0:
                break
            while smaller is not None and budget > 0:
                budget -= 1
                if not fails(ast.unparse(ast.fix_missing_locations(smaller))):
                    break
                # the next edit has the same number now
                tree, changed = smaller, True
                smaller = _edit(tree, number)
    return ast.unparse(tree)


def _edit(tree: ast.Module, number: int) -> ast.Module | None:
    """Return a copy with one edit made, or None when there is no edit of that number."""
    copied = copy.deepcopy(tree)
    for count, apply in enumerate(_edits(copied)):
        if count == number:
            apply()
            return copied
    return None


def _edits(tree: ast.Module) -> Iterator[Callable[[], None]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
            yield from _of_block(node.body)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STEPS":
            assert isinstance(node.value, ast.List)
            steps = node.value.elts
            for at in range(len(steps) - 1, 0, -1):
                yield lambda steps=steps, at=at: steps.pop(at)
                yield lambda steps=steps, at=at: _clear(steps[at], 0)
                yield lambda steps=steps, at=at: _clear(steps[at], 1)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
            yield from _of_expressions(node)


def _clear(step: ast.expr, part: int) -> None:
    assert isinstance(step, ast.Tuple)
    step.elts[part] = ast.Constant("pass")


def _of_block(body: list[ast.stmt]) -> Iterator[Callable[[], None]]:
    """Edits of a block, the largest first: without a statement, with a statement's block in its place."""
    for at in range(len(body) - 1, -1, -1):
        statement = body[at]
        if len(body) > 1:
            yield lambda at=at: body.pop(at)
        elif not isinstance(statement, ast.Pass):
            yield lambda at=at: body.__setitem__(at, ast.Pass())
        for inner in _blocks(statement):
            yield lambda at=at, inner=inner: body.__setitem__(slice(at, at + 1), inner)
    for statement in list(body):
        for inner in _blocks(statement):
            yield from _of_block(inner)
        for name in ("orelse", "finalbody"):
            block = getattr(statement, name, None)
            if isinstance(block, list) and block:
                yield block.clear


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _of_expressions(function: ast.FunctionDef) -> Iterator[Callable[[], None]]:
    """Edits of expressions: a part in place of the whole."""
    for node in ast.walk(function):
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for at, expression in enumerate(values):
                if isinstance(expression, (ast.BinOp, ast.Call, ast.IfExp, ast.BoolOp, ast.Compare, ast.Subscript)):
                    for part in ast.iter_child_nodes(expression):
                        if isinstance(part, ast.expr):
                            yield lambda n=node, name=name, at=at, part=part, many=isinstance(value, list): _replace(
                                n, name, at, part, many
                            )


def _replace(node: ast.AST, name: str, at: int, part: ast.expr, many: bool) -> None:
    if many:
        getattr(node, name)[at] = part
    else:
        setattr(node, name, part)
