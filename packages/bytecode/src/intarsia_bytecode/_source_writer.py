"""The writer of statements: a stack of expressions, those of them that had to be kept, and the branches."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, MappingProxyType
from typing import Any

from intarsia_bytecode.decode import Instruction, decode
from intarsia_bytecode.holes import Hole

__all__ = ["NULL", "Expression", "UnwrittenError", "Writer", "identifier", "word_of"]

_LONGEST = 2000  # instructions that are written, branches that are written twice included
_ATOMS = (int, str, bytes, bool, type(None), type(Ellipsis))


class UnwrittenError(Exception):
    """There is no Python for it."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What is on the stack.

    Args:
        text: Python.
        is_atom: Whether it is an operand as it stands, without parentheses.
        reads: Locals that it looks at.
        is_value: Whether it is the same whenever it is evaluated, as long as these locals are.
    """

    text: str
    is_atom: bool = True
    reads: frozenset[str] = frozenset()
    is_value: bool = False

    def __str__(self) -> str:
        return self.text if self.is_atom else f"({self.text})"


NULL = Expression("")


def _made(text: str, *parts: Expression, is_atom: bool = True) -> Expression:
    return Expression(text, is_atom, frozenset().union(*(part.reads for part in parts)))


@dataclass(slots=True)
class Writer:
    """Writes statements.

    Args:
        code: What is written.
        steps: What each instruction does that doesn't jump, by its name.
        lines: The statements.
        names: What has no literal.
        declared: What is written of outer scopes, by the statement that says so.
    """

    code: CodeType
    steps: Mapping[str, Callable[[Writer, Instruction], None]]
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, list[str]] = field(default_factory=lambda: {"global": [], "nonlocal": []})
    stack: list[Expression] = field(default_factory=list)
    indent: int = 1
    n_kept: int = 0
    n_run: int = 0

    # -- control flow --------------------------------------------------------------------------------------------

    def run(self, at: int, stack: list[Expression]) -> None:
        """Write all from an instruction on, up to the ends."""
        decoded, self.stack = decode(self.code), stack
        while True:
            step = decoded.instructions[at]
            self.n_run += 1
            if self.n_run > _LONGEST or decoded.handlers[at] is not None:
                raise UnwrittenError
            if step.op.startswith("POP_JUMP"):
                self.branch(step)
                return
            if step.op == "RETURN_VALUE" or step.op == "RETURN_CONST":
                result = self.stack.pop() if step.op == "RETURN_VALUE" else self.constant(step.value)
                self.say(f"return {result.text}")
                return
            if step.op == "UNPACK_SEQUENCE":
                at += self.unpack(step, decoded.instructions[at + 1 : at + 1 + step.arg])
            elif step.op == "JUMP_FORWARD":
                at = step.target
                continue
            else:
                self.step(step)
            at += 1

    def branch(self, step: Instruction) -> None:
        """Write a condition, and both ways from it to their ends."""
        asked = self.stack.pop()
        self.keep_all()
        what = step.op.removeprefix("POP_JUMP_").removeprefix("FORWARD_").removeprefix("IF_")
        if what not in _CONDITIONS or step.target <= step.index:
            raise UnwrittenError
        self.say(f"if {_CONDITIONS[what](asked)}:")
        kept = list(self.stack)
        self.indent += 1
        self.run(step.index + 1, list(kept))
        self.indent -= 1
        self.run(step.target, kept)

    # -- statements ----------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write a statement; what was evaluated before it, and isn't in it, is kept in locals first."""
        self.keep_all()
        self.lines.append("    " * self.indent + text)

    def keep_all(self) -> None:
        """Keep in locals what something could happen to."""
        for place, entry in enumerate(self.stack):
            if not entry.is_value and entry is not NULL:
                self.stack[place] = self.kept(entry)

    def kept(self, entry: Expression) -> Expression:
        """Put an expression into a new local."""
        name = f"t{self.n_kept}"
        self.n_kept += 1
        if name in self.code.co_varnames or name in self.code.co_names:
            return self.kept(entry)
        self.lines.append(f"{'    ' * self.indent}{name} = {entry.text}")
        return Expression(name, is_value=True)

    def spare(self, local: str) -> None:
        """Keep what reads a local before it becomes another one."""
        for place, entry in enumerate(self.stack):
            if local in entry.reads:
                self.stack[place] = self.kept(entry)

    def assign(self, target: str, value: Expression, local: str = "") -> None:
        """Write an assignment."""
        self.keep_all()
        if local:
            self.spare(local)
        self.lines.append(f"{'    ' * self.indent}{target} = {value.text}")

    def unpack(self, step: Instruction, stores: tuple[Instruction, ...]) -> int:
        """Write an unpacking into the locals that are stored next, or into new ones; return how many were stored."""
        value = self.stack.pop()
        if all(s.op == "STORE_FAST" for s in stores):
            self.keep_all()
            for store in stores:
                self.spare(identifier(store.value))
            targets = [store.value for store in stores]
        else:
            targets = [f"t{self.n_kept + k}" for k in range(step.arg)]
            self.n_kept += step.arg
            if set(targets) & {*self.code.co_varnames, *self.code.co_names}:
                raise UnwrittenError
        self.assign(f"({', '.join(targets)}{',' if len(targets) == 1 else ''})", value)
        if all(s.op == "STORE_FAST" for s in stores):
            return len(stores)
        self.stack += [Expression(target, is_value=True) for target in reversed(targets)]
        return 0

    # -- expressions ---------------------------------------------------------------------------------------------

    def step(self, step: Instruction) -> None:
        """Run one instruction that doesn't jump."""
        run = self.steps.get(step.op)
        if run is None:
            raise UnwrittenError
        run(self, step)

    def pop(self, count: int) -> list[Expression]:
        """Pop expressions, the uppermost last."""
        if count > len(self.stack):
            raise UnwrittenError
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found

    def push(self, text: str, *parts: Expression, is_atom: bool = True) -> None:
        """Push an expression made of others, whose values were evaluated in their order in the text."""
        if NULL in parts:
            raise UnwrittenError
        self.stack.append(_made(text, *parts, is_atom=is_atom))

    def constant(self, value: Any) -> Expression:
        """Return a constant: a literal, or a name."""
        text = _literal(value)
        if text is not None:
            return Expression(text, is_atom=not text.startswith("-"), is_value=True)
        name = next((name for name, known in self.names.items() if known is value), "")
        if not name:
            name = _name_for(value, len(self.names))
            taken = {*self.names, *self.code.co_varnames, *self.code.co_names, *self.code.co_freevars}
            name = name if name not in taken else f"{name}_{len(self.names)}"
            if name in taken:
                raise UnwrittenError
            self.names[name] = value
        return Expression(name, is_value=True)

    def call(self, function: Expression, arguments: list[str], *parts: Expression) -> None:
        """Push a call."""
        self.push(f"{function}({', '.join(arguments)})", function, *parts)


def _literal(value: Any) -> str | None:
    if type(value) in _ATOMS:
        return repr(value) if value is not ... else "..."
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is tuple:
        items = [_literal(item) for item in value]
        return None if None in items else f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
    return None


def _name_for(value: Any, number: int) -> str:
    if isinstance(value, Hole):
        return identifier(value.name)
    named = getattr(value, "co_name", None) or getattr(value, "__name__", None) or type(value).__name__
    return f"{word_of(named).lstrip('_0123456789').rstrip('_') or 'constant'}_{number}"


def word_of(name: Any) -> str:
    """Return an identifier for a name, which may be one of ours with spaces in it."""
    words = [word for word in re.split(r"\W+", str(name)) if word]
    made = "_".join(words).lstrip("0123456789") or "constant"
    return f"{made}_" if keyword.iskeyword(made) else made


def identifier(text: Any) -> str:
    if not str(text).isidentifier() or keyword.iskeyword(str(text)):
        raise UnwrittenError
    return str(text)


_CONDITIONS: Mapping[str, Callable[[Expression], str]] = MappingProxyType(
    {
        "FALSE": lambda asked: asked.text,
        "TRUE": lambda asked: f"not {asked}",
        "NONE": lambda asked: f"{asked} is not None",
        "NOT_NONE": lambda asked: f"{asked} is None",
    }
)
