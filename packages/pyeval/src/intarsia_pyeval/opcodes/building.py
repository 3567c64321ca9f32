"""Making containers, and taking them apart."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import iteration, special, texts
from intarsia_pyeval.semantics.iteration import unpack_exactly
from intarsia_pyeval.stores import dict_store, set_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.sequences import List, Slice, Tuple

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "build_const_key_map",
    "build_list",
    "build_map",
    "build_set",
    "build_slice",
    "build_string",
    "build_tuple",
    "dict_merge",
    "dict_update",
    "list_append",
    "list_extend",
    "list_to_tuple",
    "map_add",
    "set_add",
    "set_update",
    "unpack_ex",
    "unpack_sequence",
]


def build_tuple(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a tuple."""
    f.stack.append(Tuple(f.popn(i.arg)))


def build_list(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a list."""
    f.stack.append(List(f.popn(i.arg)))


def build_set(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a set."""
    f.stack.append(set_store.of(f.tx, f.popn(i.arg)))


def build_map(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a dict from alternating keys and values."""
    flat = f.popn(2 * i.arg)
    made = Dict()
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        do.set_item(f.tx, made, key, value)
    f.stack.append(made)


def build_const_key_map(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a dict from values and a tuple of keys."""
    keys = iteration.unpack(f.tx, f.stack.pop())
    made = Dict()
    for key, value in zip(keys, f.popn(i.arg), strict=True):
        do.set_item(f.tx, made, key, value)
    f.stack.append(made)


def build_slice(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a slice."""
    f.stack.append(Slice(f.popn(i.arg)))


def build_string(f: EvaluatedFrame, i: Instruction) -> None:
    """Join strings."""
    f.stack.append(texts.joined(f.tx.guards, f.popn(i.arg)))


def list_append(f: EvaluatedFrame, i: Instruction) -> None:
    """Append inside a comprehension."""
    item = f.stack.pop()
    do.call_method(f.tx, f.stack[-i.arg], "append", [item], {})


def list_extend(f: EvaluatedFrame, i: Instruction) -> None:
    """Extend a list that is being built."""
    items = f.stack.pop()
    if not any(f.tx.classes.find(items.type(), name) for name in ("__iter__", "__getitem__")):
        f.tx.raising.error(TypeError, f"Value after * must be an iterable, not {items.type().__name__}")
    do.call_method(f.tx, f.stack[-i.arg], "extend", [items], {})


def set_add(f: EvaluatedFrame, i: Instruction) -> None:
    """Add inside a comprehension."""
    item = f.stack.pop()
    do.call_method(f.tx, f.stack[-i.arg], "add", [item], {})


def set_update(f: EvaluatedFrame, i: Instruction) -> None:
    """Update a set that is being built."""
    items = f.stack.pop()
    do.call_method(f.tx, f.stack[-i.arg], "update", [items], {})


def map_add(f: EvaluatedFrame, i: Instruction) -> None:
    """Store inside a comprehension."""
    key, value = f.popn(2)
    do.set_item(f.tx, f.stack[-i.arg], key, value)


def dict_update(f: EvaluatedFrame, i: Instruction) -> None:
    """Update a dict that is being built."""
    items = _mapping(f)
    do.call_method(f.tx, f.stack[-i.arg], "update", [items], {})


def _mapping(f: EvaluatedFrame) -> Value:
    """Pop what stands behind `**`; the TypeError about anything but a mapping is left to CPython."""
    items = f.stack.pop()
    if not issubclass(items.type(), dict) and not special.has_attribute(f.tx, items, "keys"):
        raise Break("tracer.exception", f"{items.describe()} stands behind **")
    return items


def dict_merge(f: EvaluatedFrame, i: Instruction) -> None:
    """Merge keyword arguments; a repeated one is left to CPython."""
    items = _mapping(f)
    target = cast(Dict, f.stack[-i.arg])
    for hashed, key, value in iteration.pairs(f.tx, items):
        if dict_store.find(f.tx, target, hashed) is not None:
            raise Break("tracer.exception", f"the keyword {hashed!r} is given twice")
        dict_store.store(f.tx, target, hashed, key, value)


def unpack_sequence(f: EvaluatedFrame, i: Instruction) -> None:
    """Unpack exactly as many elements."""
    value = f.stack.pop()
    found = unpack_exactly(f.tx, value, i.arg)
    f.stack.extend(reversed(found))


def unpack_ex(f: EvaluatedFrame, i: Instruction) -> None:
    """Unpack with a starred target."""
    before, after = i.arg & 255, i.arg >> 8
    value = f.stack.pop()
    if iteration.is_read_whole(f.tx.classes, value):
        found = iteration.unpack(f.tx, value)
    else:
        iterator = do.iterate(f.tx, value)
        found = list(itertools.islice(iteration.elements_left(f.tx, iterator), before))
        found += iteration.taken(f.tx, iterator) if len(found) == before else []
    if len(found) < before + after:
        wanted = f"expected at least {before + after}, got {len(found)}"
        f.tx.raising.error(ValueError, f"not enough values to unpack ({wanted})")
    end = len(found) - after
    f.stack.extend(reversed([*found[:before], List(found[before:end]), *found[end:]]))


def list_to_tuple(f: EvaluatedFrame, i: Instruction) -> None:
    """Turn a list into a tuple."""
    f.stack.append(Tuple(iteration.unpack(f.tx, f.stack.pop())))
