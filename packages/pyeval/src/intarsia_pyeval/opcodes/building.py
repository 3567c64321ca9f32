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


def build_tuple(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a tuple."""
    frame.stack.append(Tuple(frame.popn(instruction.arg)))


def build_list(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a list."""
    frame.stack.append(List(frame.popn(instruction.arg)))


def build_set(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a set."""
    frame.stack.append(set_store.of(frame.tx, frame.popn(instruction.arg)))


def build_map(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a dict from alternating keys and values."""
    flat = frame.popn(2 * instruction.arg)
    mapping = Dict()
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        do.set_item(frame.tx, mapping, key, value)
    frame.stack.append(mapping)


def build_const_key_map(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a dict from values and a tuple of keys."""
    keys = iteration.unpack(frame.tx, frame.stack.pop())
    mapping = Dict()
    for key, value in zip(keys, frame.popn(instruction.arg), strict=True):
        do.set_item(frame.tx, mapping, key, value)
    frame.stack.append(mapping)


def build_slice(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Build a slice."""
    frame.stack.append(Slice(frame.popn(instruction.arg)))


def build_string(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Join strings."""
    frame.stack.append(texts.joined(frame.tx.guards, frame.popn(instruction.arg)))


def list_append(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Append inside a comprehension."""
    item = frame.stack.pop()
    do.call_method(frame.tx, frame.stack[-instruction.arg], "append", [item], {})


def list_extend(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Extend a list that is being built."""
    items = frame.stack.pop()
    if not any(frame.tx.classes.find(items.type(), name) for name in ("__iter__", "__getitem__")):
        frame.tx.raising.error(TypeError, f"Value after * must be an iterable, not {items.type().__name__}")
    do.call_method(frame.tx, frame.stack[-instruction.arg], "extend", [items], {})


def set_add(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Add inside a comprehension."""
    item = frame.stack.pop()
    do.call_method(frame.tx, frame.stack[-instruction.arg], "add", [item], {})


def set_update(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Update a set that is being built."""
    items = frame.stack.pop()
    do.call_method(frame.tx, frame.stack[-instruction.arg], "update", [items], {})


def map_add(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Store inside a comprehension."""
    key, value = frame.popn(2)
    do.set_item(frame.tx, frame.stack[-instruction.arg], key, value)


def dict_update(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Update a dict that is being built."""
    items = _mapping(frame)
    do.call_method(frame.tx, frame.stack[-instruction.arg], "update", [items], {})


def _mapping(frame: EvaluatedFrame) -> Value:
    """Pop what stands behind `**`; the TypeError about anything but a mapping is left to CPython."""
    items = frame.stack.pop()
    if not issubclass(items.type(), dict) and not special.has_attribute(frame.tx, items, "keys"):
        raise Break("tracer.exception", f"{items.describe()} stands behind **")
    return items


def dict_merge(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Merge keyword arguments; a repeated one is left to CPython."""
    items = _mapping(frame)
    target = cast(Dict, frame.stack[-instruction.arg])
    for hashed, key, value in iteration.pairs(frame.tx, items):
        if dict_store.find(frame.tx, target, hashed) is not None:
            raise Break("tracer.exception", f"the keyword {hashed!r} is given twice")
        dict_store.store(frame.tx, target, hashed, key, value)


def unpack_sequence(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Unpack exactly as many elements."""
    value = frame.stack.pop()
    elements = unpack_exactly(frame.tx, value, instruction.arg)
    frame.stack.extend(reversed(elements))


def unpack_ex(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Unpack with a starred target."""
    before, after = instruction.arg & 255, instruction.arg >> 8
    value = frame.stack.pop()
    if iteration.is_read_whole(frame.tx.classes, value):
        elements = iteration.unpack(frame.tx, value)
    else:
        iterator = do.iterate(frame.tx, value)
        elements = list(itertools.islice(iteration.elements_left(frame.tx, iterator), before))
        elements += iteration.taken(frame.tx, iterator) if len(elements) == before else []
    if len(elements) < before + after:
        wanted = f"expected at least {before + after}, got {len(elements)}"
        frame.tx.raising.error(ValueError, f"not enough values to unpack ({wanted})")
    end = len(elements) - after
    frame.stack.extend(reversed([*elements[:before], List(elements[before:end]), *elements[end:]]))


def list_to_tuple(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Turn a list into a tuple."""
    frame.stack.append(Tuple(iteration.unpack(frame.tx, frame.stack.pop())))
