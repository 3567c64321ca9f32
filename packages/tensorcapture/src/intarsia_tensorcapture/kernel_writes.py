"""Which arguments a user's Triton kernel writes, read off its source.

What a name may point into is followed through assignments, in any order: a name stands for the parameters that went
into it. What is loaded points nowhere. Written are the parameters that went into the first argument of a store or an
atomic operation, here or in a function of Triton's that is called; what can't be read counts as written.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["Unreadable", "written_parameters"]

_WRITING = re.compile(r"store|atomic|scatter|tensormap|copy|asm|extern")
_READING = re.compile(r"(^|_)load($|_)|^atomic_|^gather$")
_ONLY_READING = frozenset({"atomic_load", "atomic_poll"})
_OPAQUE = re.compile(r"asm|extern")
_DEEPEST = 8
_Names = frozenset[str]
_NONE: _Names = frozenset()


class Unreadable(Exception):  # noqa: N818  (an answer, not an error)
    """A kernel takes addresses from memory: nothing tells what it writes."""


def written_parameters(kernel: Any) -> frozenset[str]:
    """Return the names of the parameters that a kernel may write through.

    Args:
        kernel: What `triton.jit` made of a function, or the function.

    Raises:
        Unreadable: It makes pointers of numbers.
    """
    function = kernel if isinstance(kernel, FunctionType) else kernel.fn
    return _written(function, 0)


@functools.cache
def _written(function: FunctionType, depth: int) -> frozenset[str]:
    parameters = frozenset(inspect.signature(function).parameters)
    definition = _definition(function)
    if definition is None or depth > _DEEPEST:
        return parameters
    reader = _Reader(function, parameters, depth)
    reader.follow(definition)
    return frozenset(reader.written(definition)) & parameters


def _definition(function: FunctionType) -> ast.FunctionDef | None:
    """Return the source of a function; None where it can't be had."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # made by exec, or in an interactive session
        return None
    found = tree.body[0]
    return found if isinstance(found, ast.FunctionDef) else None


class _Reader:
    """Follows the names of one function.

    Args:
        function: Python function of the kernel.
        parameters: Its parameters.
        depth: How many functions call it.
    """

    def __init__(self, function: FunctionType, parameters: frozenset[str], depth: int) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.outside = {**vars(builtins), **function.__globals__, **{name: _content(cell) for name, cell in cells}}
        self.depth = depth
        self.into: dict[str, _Names] = {name: frozenset({name}) for name in parameters}

    def follow(self, definition: ast.FunctionDef) -> None:
        """Find what goes into each name, until nothing is added."""
        before = None
        while before != self.into:
            before = dict(self.into)
            for node in ast.walk(definition):
                for target, value in _assigned(node):
                    self._add(target, self._of(value))

    def _add(self, target: ast.expr, names: _Names) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.into[node.id] = self.into.get(node.id, _NONE) | names

    def _of(self, node: ast.AST) -> _Names:
        """Return the parameters that an expression may point into."""
        if isinstance(node, ast.Name):
            if node.id == "pointer_type":
                raise Unreadable
            return self.into.get(node.id, _NONE)
        if isinstance(node, ast.Attribute) and node.attr == "pointer_type":
            raise Unreadable
        if isinstance(node, ast.Call) and _READING.search(self._name_of(node.func)):
            return _NONE
        return frozenset().union(*(self._of(child) for child in ast.iter_child_nodes(node)))

    def written(self, definition: ast.FunctionDef) -> Iterator[str]:
        """Yield what the calls in a function write."""
        for node in ast.walk(definition):
            if isinstance(node, ast.Call):
                yield from self._by_call(node)

    def _by_call(self, call: ast.Call) -> _Names:
        """Return what one call writes."""
        name, callee = self._name_of(call.func), self._object_of(call.func)
        everything = [*call.args, *(keyword.value for keyword in call.keywords)]
        if callee is None and isinstance(call.func, ast.Attribute):  # a method of a value of the kernel
            return self._of(call.func.value) if _WRITING.search(name) and name not in _ONLY_READING else _NONE
        if _is_of_language(callee):
            if not _WRITING.search(name) or name in _ONLY_READING:
                return _NONE
            first = call.args[:1] if call.args and not _OPAQUE.search(name) else everything
            return self._all(first)
        if isinstance(getattr(callee, "fn", None), FunctionType):
            return self._by_function(call, callee)
        if callee is None or isinstance(callee, FunctionType):
            return self._all(everything)
        return _NONE  # a built-in function or a class, which knows no pointers

    def _by_function(self, call: ast.Call, callee: Any) -> _Names:
        """Return what a call of another function of Triton's writes."""
        inner = _written(callee.fn, self.depth + 1)
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return self._all([*call.args, *(k.value for k in call.keywords)]) if inner else _NONE
        given = dict(zip(inspect.signature(callee.fn).parameters, call.args, strict=False))
        given |= {str(keyword.arg): keyword.value for keyword in call.keywords}
        return self._all([value for name, value in given.items() if name in inner])

    def _all(self, nodes: list[ast.expr]) -> _Names:
        return frozenset().union(*map(self._of, nodes))

    def _name_of(self, function: ast.expr) -> str:
        """Return the name of what is called: its own where it is known, else the one that it is called by."""
        own = getattr(self._object_of(function), "__name__", None)
        if isinstance(own, str):
            return own
        return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

    def _object_of(self, node: ast.expr) -> Any:
        """Return what a dotted name outside of the function is; None for values of the kernel."""
        if isinstance(node, ast.Name):
            return None if node.id in self.into else self.outside.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._object_of(node.value)
            return getattr(base, node.attr, None) if isinstance(base, (ModuleType, type)) else None
        return None


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield the targets of a statement with what goes into them."""
    match node:
        case ast.Assign(targets, value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target, _, value) | ast.AugAssign(target, _, value) if value is not None:
            yield target, value
        case ast.NamedExpr(target, value):
            yield target, value
        case ast.For(target, iter) | ast.comprehension(target, iter):
            yield target, iter
        case ast.withitem(context, target) if target is not None:
            yield target, context


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _is_of_language(callee: Any) -> bool:
    """Tell whether something is a function of Triton's language that isn't written in it."""
    module = getattr(callee, "__module__", None) or ""
    is_function: Callable[[Any], bool] = callable
    return module.startswith("triton.language") and is_function(callee) and not hasattr(callee, "fn")
