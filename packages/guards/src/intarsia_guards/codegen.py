"""The predicate as Python: one function for all guards of an entry, straight-line, returning at the first failure.

What a guard checks is the text of its row; this module fetches each source once, into a variable, at its first use. It
is what `GuardSet.text` shows, and what is run where the extension isn't built.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from intarsia_guards import lookup
from intarsia_guards.held import Held
from intarsia_guards.layout import SET_BY_MODULE, Layout, apart_check, looks_up_as_module, position
from intarsia_guards.relations import SizeTexts
from intarsia_guards.rows import HeldGuard
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    LengthSource,
    ModuleSource,
    PlainAttributeSource,
    ReferentSource,
    Source,
    TypeSource,
)

__all__ = ["Predicate", "TextWriter", "write"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A generated predicate.

    Args:
        function: Takes the values of its layout, and globals last when `wants_globals`.
        wants_globals: Whether a guard looks at a global.
        text: Its source, to read.
    """

    function: Callable[..., bool]
    wants_globals: bool
    text: str


def write(guards: Sequence[HeldGuard[Any]], layout: Layout) -> Predicate:
    """Return the predicate of `guards` (in order) for a layout.

    Raises:
        InvalidArgumentError: A source names an argument or free variable that the layout lacks.
    """
    writer = TextWriter(layout)
    for guard in guards:
        guard.text(writer)
    if writer.apart:
        check, sources = apart_check(writer.apart, guards)
        writer.require(f"{writer.constant(check)}({', '.join(map(writer.fetch, sources))})")
    writer.add_sizes()
    return writer.finish()


@dataclass(slots=True)
class TextWriter:
    """What rows write their text into.

    Args:
        layout: The values that the predicate is called with.
        lines: Statements so far.
        constants: Name -> object that the text speaks of.
        variables: Source -> variable that holds its value.
        classes: Source -> exact class, where a guard before has fixed it.
        required: Conditions that are there.
        apart: Of each guard against overlaps its sources.
        sizes: Relations between sizes.
        wants_globals: Whether a source is a global.
    """

    layout: Layout
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    variables: dict[Source, str] = field(default_factory=dict)
    classes: dict[Source, Any] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    apart: list[tuple[Source, ...]] = field(default_factory=list)
    sizes: SizeTexts = field(default_factory=SizeTexts)
    wants_globals: bool = False

    def finish(self) -> Predicate:
        """Return the predicate of what was written."""
        parameters = [f"a{i}" for i in range(len(self.layout.arguments))]
        parameters += [f"f{i}" for i in range(len(self.layout.cells))]
        parameters += ["g"] if self.wants_globals else []
        body = self.lines or ["pass"]
        text = "\n".join([f"def guard({', '.join(parameters)}):", "    try:", *(f"        {line}" for line in body)])
        text += "\n    except Exception:\n        return False\n    return True\n"
        space = dict(self.constants)
        exec(compile(text, "<intarsia guard>", "exec"), space)
        return Predicate(space["guard"], self.wants_globals, text)

    # ---- values ----------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> str:
        """Return a name for an object."""
        for name, constant in self.constants.items():
            if constant is value:
                return name
        name = f"c{len(self.constants)}"  # no symbol of a size begins so
        self.constants[name] = value
        return name

    def held(self, value: Held[Any]) -> str:
        """Return the text of a held value: None when it's dead."""
        if value.reference is not None:
            return f"{self.constant(value.reference)}()"
        plain = value.value is None or value.value is True or value.value is False
        return repr(value.value) if plain else self.constant(value.value)

    def fetch(self, source: Source) -> str:
        """Return the variable that holds what `source` names, after the lines that fetch it."""
        if source in self.variables:
            return self.variables[source]
        match source:
            case ArgumentSource(name=name):
                return f"a{position('parameter', name, self.layout.arguments)}"
            case CellSource(name=name):
                return f"f{position('free variable', name, self.layout.cells)}"
            case GlobalSource(name=name):
                variable = self._assign(source, None)
                self._global(variable, name)
            case ModuleSource(name=name):
                self._assign(source, f"{self.constant(sys.modules)}[{name!r}]")
            case AttributeSource(base=base, name=name):
                self._attribute(source, self.fetch(base), base, name)
            case ItemSource(base=base, key=key):
                self._item(source, self.fetch(base), self._key(key))
            case DictItemSource(base=base, key=key):
                self._assign(source, f"{self.constant(lookup.dict_item)}({self.fetch(base)}, {self._key(key)})")
            case PlainAttributeSource(base=base, name=name):
                self._assign(source, f"{self.constant(lookup.plain_attribute)}({self.fetch(base)}, {name!r})")
            case TypeSource(base=base):
                self._assign(source, f"type({self.fetch(base)})")
            case LengthSource(base=base):
                self._assign(source, f"{self.constant(lookup.length)}({self.fetch(base)})")
            case ArraySource(base=base):
                self._assign(source, f"{self.constant(lookup.array_tensor)}({self.fetch(base)})")
            case AnswerSource(base=base):
                self._assign(source, f"{self.fetch(base)}()")
            case ReferentSource(base=base):
                self._assign(source, f"{self.constant(lookup.referent)}({self.fetch(base)})")
            case _:
                raise InvalidArgumentError(f"{source!r} is no source that guards know", code="guards.source")
        return self.variables[source]

    def _assign(self, source: Source, text: str | None) -> str:
        variable = f"v{len(self.variables)}"
        self.variables[source] = variable
        if text is not None:
            self.lines.append(f"{variable} = {text}")
        return variable

    def _key(self, key: Any) -> str:
        return repr(key) if type(key) in (str, int) else self.constant(key)

    def _global(self, variable: str, name: str) -> None:
        self.wants_globals = True
        space = self.constant(vars(builtins))
        self.lines.append(f"{variable} = g[{name!r}] if {name!r} in g else {space}[{name!r}]")

    def _item(self, source: Source, owner: str, key: str) -> None:
        plain = f"{owner}[{key}] if type({owner}) in (dict, list, tuple)"
        self._assign(source, f"{plain} else {self.constant(lookup.item)}({owner}, {key})")

    def _attribute(self, source: Source, owner: str, base: Source, name: str) -> None:
        plain = f"{self.constant(lookup.attribute)}({owner}, {name!r})"
        cls = self.classes.get(base)
        if cls is None or not looks_up_as_module(cls, name):
            self._assign(source, plain)
            return
        space = self._space(base, owner)
        if name in SET_BY_MODULE:
            self._assign(source, f"{space}[{name!r}]")
            return
        variable = self._assign(source, None)
        self.lines += [
            f"if {name!r} in {space}: {variable} = {space}[{name!r}]",
            f"elif {name!r} in {space}['_parameters']: {variable} = {space}['_parameters'][{name!r}]",
            f"elif {name!r} in {space}['_buffers']: {variable} = {space}['_buffers'][{name!r}]",
            f"else: {variable} = {space}['_modules'][{name!r}]",
        ]

    def _space(self, base: Source, owner: str) -> str:
        """Return the variable that holds the instance dictionary of `owner`."""
        return self.fetch(AttributeSource(base, "__dict__")) if base in self.classes else f"{owner}.__dict__"

    def require(self, condition: str) -> None:
        """Add a check that must hold, unless it's there already."""
        if condition not in self.required:
            self.required.add(condition)
            self.lines.append(f"if not ({condition}): return False")

    def add_sizes(self) -> None:
        """Add the definitions of size symbols and the relations over them."""
        for name, text in self.sizes.definitions(self.fetch):
            self.lines.append(f"{name} = {text}")
        for relation in self.sizes.relations:
            self.require(relation)
        if self.sizes.uses_math:
            self.constants["math"] = math
