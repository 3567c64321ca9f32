"""The state of one capture, and what the evaluator needs of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from intarsia_pyeval import (
    calling,
    class_lookup,
    formatting,
    iteration,
    lookup,
    operators,
    storing,
)
from intarsia_pyeval.builtin_calls import BUILTIN_CALLS, PURE_FUNCTIONS, BuiltinCall
from intarsia_pyeval.copying import COPY_CALLS
from intarsia_pyeval.evaluate import Opcode
from intarsia_pyeval.extension import ExtensionMaker, Symbols
from intarsia_pyeval.polyfills import STAND_INS
from intarsia_pyeval.sources import Guards, Sources
from intarsia_pyeval.state.classes import Classes
from intarsia_pyeval.state.effects import Effects
from intarsia_pyeval.state.frames import Frames, Limits
from intarsia_pyeval.state.identities import Identities
from intarsia_pyeval.state.live import Live
from intarsia_pyeval.state.raising import Raising
from intarsia_pyeval.state.steps import Steps

__all__ = ["Tracer"]


class Tracer:
    """One capture: what was seen, relied on, changed and recorded.

    Args:
        extension: Makes the plug-in of value models.
        table: Opcode name -> handler.
        limits: How far to go.
        symbols: Which sizes and numbers of the call are symbols.
        stop_at: Outermost step to stop before; -1 for none.
        room: Frames that the program may nest before CPython raises RecursionError.

    Attributes:
        effects: What the program changed.
        steps: Where the capture stands.
        raising: Exceptions of the program.
        frames: The frames under evaluation.
        sources: Where existing objects are found.
        guards: What was relied on.
        classes: What classes define.
        live: Models of existing objects.
        identities: Which objects are the same one.
        extension: The plug-in.
    """

    builtin_calls: Mapping[Any, BuiltinCall] = {**BUILTIN_CALLS, **COPY_CALLS}
    pure_functions: frozenset[Any] = PURE_FUNCTIONS
    stand_ins: Mapping[Any, BuiltinCall] = STAND_INS

    # calling.py
    bind = calling.bind
    call = calling.call
    call_builtin = calling.call_builtin
    call_class = calling.call_class
    call_function = calling.call_function
    call_getter = calling.call_getter
    call_object = calling.call_object
    call_pure = calling.call_pure
    call_unbound = calling.call_unbound
    has_attribute = calling.has_attribute
    inline = calling.inline
    instantiate = calling.instantiate
    new_instance = calling.new_instance
    object_advance = calling.object_advance
    object_contains = calling.object_contains
    object_iterate = calling.object_iterate
    object_truth = calling.object_truth
    plain_mapping = calling.plain_mapping
    special = calling.special
    # formatting.py
    call_hash = formatting.call_hash
    call_repr = formatting.call_repr
    call_str = formatting.call_str
    exception_text = formatting.exception_text
    format_string = formatting.format_string
    format_value = formatting.format_value
    object_text = formatting.object_text
    percent_format = formatting.percent_format
    printable = formatting.printable
    # lookup.py
    bound_to_instance = lookup.bound_to_instance
    class_attribute = class_lookup.class_attribute
    class_attribute_for = class_lookup.class_attribute_for
    class_item = class_lookup.class_item
    class_iterate = class_lookup.class_iterate
    exception_attribute = lookup.exception_attribute
    function_attribute = class_lookup.function_attribute
    guard_not_in_instance = lookup.guard_not_in_instance
    hash_is_safe = lookup.hash_is_safe
    instance_attribute = lookup.instance_attribute
    instance_dict = lookup.instance_dict
    own_dict_source = lookup.own_dict_source
    own_source = lookup.own_source
    module_attribute = class_lookup.module_attribute
    module_globals = class_lookup.module_globals
    object_attribute = lookup.object_attribute
    object_hash_key = lookup.object_hash_key
    object_set_attribute = storing.object_set_attribute
    object_slot = storing.object_slot
    plain_attribute = lookup.plain_attribute
    plain_set_attribute = storing.plain_set_attribute
    super_attribute = class_lookup.super_attribute
    write_attribute = storing.write_attribute
    # iteration.py
    advance = iteration.advance
    ask_length = iteration.ask_length
    elements = iteration.elements
    elements_left = iteration.elements_left
    is_read_whole = iteration.is_read_whole
    iterator_over = iteration.iterator_over
    keyword_pairs = iteration.keyword_pairs
    list_of = iteration.list_of
    next_or_stop = iteration.next_or_stop
    pairs = iteration.pairs
    real_item = iteration.real_item
    size_from = iteration.size_from
    taken = iteration.taken
    unpack = iteration.unpack
    # operators.py
    built_in_part = staticmethod(operators.built_in_part)
    binary = operators.binary
    check_size = operators.check_size
    compare = operators.compare
    compare_identity = operators.compare_identity
    index = operators.index
    operator_method = operators.operator_method
    real = operators.real
    same = operators.same
    same_or_equal = operators.same_or_equal
    truth = operators.truth
    whole_number = operators.whole_number

    def __init__(
        self,
        extension: ExtensionMaker,
        table: Mapping[str, Opcode],
        limits: Limits,
        symbols: Symbols,
        stop_at: int = -1,
        room: int = sys.maxsize,
    ) -> None:
        self.effects = Effects(self.recorded)
        self.steps = Steps(self.effects, stop_at)
        self.frames = Frames(table, limits, room)
        self.sources = Sources()
        self.guards = Guards(self.frames.origin)
        self.raising = Raising(self.steps, self.guards)
        self.classes = Classes(self.sources, self.guards)
        self.live = Live(self)
        self.identities = Identities(self.guards, self.live, self.effects, self.frames.origin)
        self.extension = extension(self, symbols)

    def recorded(self) -> int:
        """Return a number that grows with every operation that the plug-in records."""
        return self.extension.position()

    def forget(self) -> None:
        """Let go of everything: models, frames and the capture refer to each other, and would live to a collection."""
        self.extension.end()
        frames = self.frames
        vars(self).clear()
        self.frames = frames  # generators that end now still ask it
        vars(frames).clear()
