"""The state of one capture, and what the evaluator needs of it."""

from __future__ import annotations

import builtins
import collections
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, NoReturn

from intarsia_ir.records import Origin, Source, Symbolic
from intarsia_tracer import (
    calling,
    class_lookup,
    formatting,
    identity,
    iteration,
    lookup,
    operators,
    polyfills,
    storing,
    wrapping,
)
from intarsia_tracer.breaks import Break, Raised, Stop, TooDeep
from intarsia_tracer.builtin_calls import BUILTIN_CALLS, PURE_FUNCTIONS, BuiltinCall
from intarsia_tracer.copying import COPY_CALLS
from intarsia_tracer.evaluate import EvaluatedFrame, Opcode, Yielded
from intarsia_tracer.extension import Extension
from intarsia_tracer.handling import leave_context, rely_on_calm_caller
from intarsia_tracer.instances import is_instance
from intarsia_tracer.polyfills import STAND_INS, model
from intarsia_tracer.sources import Guards, Sources
from intarsia_tracer.trust import is_installed_file, is_trusted
from intarsia_tracer.values.base import Keywords, Value
from intarsia_tracer.values.constants import NONE, Const
from intarsia_tracer.values.functions import BoundBuiltin, Cell, Globals, MadeFunction
from intarsia_tracer.values.iterators import Generator
from intarsia_tracer.values.objects import ClassValue, ModuleValue, Object
from intarsia_tracer.values.sequences import Tuple

__all__ = ["Limits", "Tracer"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one capture goes.

    Args:
        depth: Nested calls that are inlined; never more than eager itself could nest.
        instructions: Instructions of loops and calls that are evaluated, roughly.
    """

    depth: int = 5000
    instructions: int = 2_000_000


class Tracer:
    """One capture: what was seen, relied on, changed and recorded.

    Args:
        extension: The plug-in of value models.
        table: Opcode name -> handler.
        limits: How far to go.
        stop_at: Outermost step to stop before; -1 for none.
        symbolic: Which sizes and numbers of the call are symbols.
        symbols: Whether there may be any: the first attempt at a call without them finds marked sizes.
        marks: Whether sizes that the user marked are symbols.
        room: Frames that the program may nest before CPython raises RecursionError.
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
    # identity.py
    check_end = identity.check_end
    guard_aliases = identity.guard_aliases
    guard_missing_key = identity.guard_missing_key
    note_key = identity.note_key
    rely_on_identity = identity.rely_on_identity
    unnoted_keys = identity.unnoted_keys
    # lookup.py
    check_no_arguments = storing.check_no_arguments
    bound_to_instance = lookup.bound_to_instance
    class_attribute = class_lookup.class_attribute
    class_attribute_for = class_lookup.class_attribute_for
    rely_on_absence = class_lookup.rely_on_absence
    rely_on_passing_over = class_lookup.rely_on_passing_over
    class_function = class_lookup.class_function
    class_item = class_lookup.class_item
    class_iterate = class_lookup.class_iterate
    class_source = class_lookup.class_source
    exception_attribute = lookup.exception_attribute
    find_in_class = class_lookup.find_in_class
    function_attribute = class_lookup.function_attribute
    is_subclass = class_lookup.is_subclass
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
    arity = operators.arity
    asks_python = operators.asks_python
    built_in_part = staticmethod(operators.built_in_part)
    binary = operators.binary
    check_size = operators.check_size
    compare = operators.compare
    compare_identity = operators.compare_identity
    index = operators.index
    named = operators.named
    operator_method = operators.operator_method
    real = operators.real
    same = operators.same
    same_or_equal = operators.same_or_equal
    truth = operators.truth
    whole_number = operators.whole_number
    # wrapping.py
    cell_of = wrapping.cell_of
    class_value = wrapping.class_value
    constant = wrapping.constant
    from_python = wrapping.from_python
    globals_of = wrapping.globals_of
    guard_identity = wrapping.guard_identity
    key_of = wrapping.key_of
    key_value = wrapping.key_value
    wrap = wrapping.wrap

    def __init__(
        self,
        extension: Extension,
        table: Mapping[str, Opcode],
        limits: Limits,
        stop_at: int = -1,
        symbolic: Symbolic = Symbolic(),  # noqa: B008  (frozen)
        symbols: bool = False,
        marks: bool = False,
        room: int = sys.maxsize,
    ) -> None:
        self.extension = extension
        self.table = table
        self.limits = limits
        self.stop_at = stop_at
        self.symbolic = symbolic
        self.symbols = symbols
        self.marks = marks
        self.sources = Sources()
        self.guards = Guards(self.origin)
        self.known: dict[int, Value] = {}  # id of an existing object -> its model
        self.kept: list[Any] = []  # keeps those objects alive, so that ids stay theirs
        self.reference_sources: dict[int, Source] = {}
        self.trusted_sources: frozenset[Source] = frozenset()
        self.class_lookups: dict[tuple[Any, str], tuple[Any, int] | None] = {}
        self.class_functions: dict[tuple[Any, str, str], Value] = {}
        self.builtin_names: dict[tuple[int, str], Value] = {}
        self.identity_keys: dict[Value, Origin | None] = {}  # existing objects that were hashed by identity
        self.frames: list[EvaluatedFrame] = []
        self.room = room
        self.passed_over = 0  # frames that eager has in between, and that aren't evaluated
        self.dirty: dict[Value, None] = {}  # in the order of their first change
        self.let_go: list[Any] = []  # existing objects that may have ended since the frame began
        self.extension_notes: dict[str, Any] = {}  # what the plug-in wants to remember
        self.open_generators = False  # some generator was suspended where closing it has an effect
        self.own_answers = False  # whether the code was told that it is being compiled
        self.abandoned: list[Generator] = []  # those that nothing holds any more
        self.locks: dict[Value, None] = {}  # taken while tracing and not released
        self.handling: Value | None = None  # by the running generator, if one runs, else by all that runs
        self.handling_outside: Value | None = None  # by what advances the running generator
        self.handling_at_step: Value | None = None
        self.caller_handles = sys.exception() is not None
        self.raised_in: dict[int, int] = {}  # id of an exception's model -> outermost step that raised it
        self.step = -1
        self.changes = 0
        self.at_step: tuple[int, int] = (0, 0)  # changes and graph position when the step began
        self.saved_stack: list[Value] = []
        self.budget = limits.instructions

    def forget(self) -> None:
        """Let go of everything: models, frames and the capture refer to each other, and would live to a collection."""
        vars(self).clear()

    # -- progress ------------------------------------------------------------------------------------------------

    def begin_step(self, frame: EvaluatedFrame) -> None:
        """The outermost frame begins an instruction."""
        self.step += 1
        self.saved_stack = frame.stack.copy()
        self.handling_at_step = self.handling
        self.at_step = self.position()
        if self.step == self.stop_at:
            raise Stop

    def spotless(self) -> bool:
        """Tell whether the current outermost step has changed and recorded nothing so far."""
        return self.at_step == self.position()

    def position(self) -> tuple[int, int]:
        """Return what differs after anything was changed or recorded."""
        return self.changes, self.extension.position()

    def spend(self, instructions: int) -> None:
        """Count evaluated instructions against the budget."""
        self.budget -= instructions
        if self.budget < 0:
            raise Break("tracer.budget", f"more than {self.limits.instructions} instructions were evaluated")

    def changed(self, value: Value) -> None:
        """Something that may have existed before is about to change."""
        self.changes += 1
        real = value.identity()
        if type(real) in (list, collections.deque) and value not in self.dirty:
            self.check_end(real)  # type: ignore[arg-type]
        self.dirty.setdefault(value)

    def note_raised(self, exception: Value) -> None:
        """The outermost frame handles an exception that this step raised."""
        self.raised_in.setdefault(id(exception), self.step)
        self.kept.append(exception)

    def origin(self) -> Origin | None:
        """Return the user line being evaluated: the innermost one that isn't library code, if there is any."""
        if not self.frames:
            return None
        outer = [frame for frame in reversed(self.frames) if not is_trusted(frame.module_name())]
        own = [frame for frame in outer if not is_installed_file(frame.code.co_filename)]
        frame = next(iter(own or outer), self.frames[-1])
        return Origin(frame.code.co_filename, frame.at.line, frame.code.co_qualname)

    # -- frames --------------------------------------------------------------------------------------------------

    def new_frame(
        self, code: CodeType, values: dict[str, Value], names: Globals, closure: Sequence[Cell]
    ) -> EvaluatedFrame:
        """Return a frame for an inlined function."""
        return EvaluatedFrame(self, code, values, names, closure)

    def run_inlined(self, frame: EvaluatedFrame) -> Value:
        """Evaluate an inlined frame to its return."""
        self.frames.append(frame)
        try:
            found = frame.run(self.table)
        except Break as broken:
            broken.leave(frame.code, self.origin())
            raise
        except Raised as raised:
            held = (*frame.stack, *frame.locals.values()) if self.open_generators else ()
            if any(isinstance(value, Generator) and value.is_open() for value in held):
                # the traceback keeps them alive, for nobody knows how long
                raise Break("tracer.exception", f"{raised.value.describe()} passes open generators") from None
            raise
        finally:
            self.frames.pop()
        assert isinstance(found, Value)
        return found

    def check_depth(self, what: str) -> None:
        """Break before a frame that is one too many."""
        depth = len(self.frames)
        if depth + self.passed_over >= self.room:
            raise TooDeep("tracer.exception", f"RecursionError is raised: calls nest {depth} deep at {what}")
        if depth >= self.limits.depth:
            raise TooDeep("tracer.depth", f"calls nest {depth} deep at {what}")

    def resume_generator(self, generator: Generator, exception: Value | None) -> tuple[bool, Value]:
        """Run a generator's frame on; tell whether it yielded, and what. It goes on handling what it handled."""
        self.check_depth("a generator")
        frame, handling, outside = generator.frame, self.handling, self.handling_outside
        self.handling, self.handling_outside = generator.handling, handling or outside
        self.frames.append(frame)
        try:
            if generator.handling is not None and exception is not None:
                self.set_context(exception)  # it is raised where the generator stopped
            found = frame.run(self.table, exception)
        except Break as broken:
            broken.leave(frame.code, self.origin())
            raise
        finally:
            self.frames.pop()
            generator.handling = self.handling
            self.handling, self.handling_outside = handling, outside
        return (True, found.value) if isinstance(found, Yielded) else (False, found)

    def abandon(self, generator: Generator) -> None:
        """Note that nothing holds a generator any more, unless the capture is over."""
        if "abandoned" in vars(self):
            self.abandoned.append(generator)

    def close_abandoned(self, frame: EvaluatedFrame | None) -> None:
        """Close the generators that the last instruction dropped: `frame` ran it, None is the end of the capture."""
        if frame is None or frame.outermost:
            self.saved_stack = []  # the instruction is done: it keeps nothing alive
        while self.abandoned:
            generator = self.abandoned.pop(0)
            try:
                generator.close(self)
            except Raised as raised:
                what = raised.value.type().__name__
                raise Break("tracer.exception", f"{what} is raised while a dropped generator is closed") from None

    def make_function(self, code: CodeType, names: Globals) -> MadeFunction:
        """Make a function in the traced code."""
        return MadeFunction(code, names)

    def global_or_builtin(self, names: Globals, name: str) -> Value:
        """Model LOAD_GLOBAL."""
        found = names.find(self, name)
        if found is not None:
            return found
        key = (id(names), name)
        known = self.builtin_names.get(key)
        if known is not None:
            return known
        real = names.real or {}
        scope = real.get("__builtins__", builtins)
        scope = scope.__dict__ if isinstance(scope, ModuleType) else scope
        if name not in scope:
            self.raise_error(NameError, f"name {name!r} is not defined")
        source = self.sources.glob(name) if names.frame and name not in real else None
        model = self.builtin_names[key] = self.wrap(scope[name], source)
        return model

    def polyfill(self, name: str, args: Sequence[Value], keywords: Keywords | None = None) -> Value:
        """Inline one of the library functions written in Python."""
        return self.inline(model(getattr(polyfills, name)), args, keywords or {})

    def is_instance(self, value: Value, cls: Value) -> bool:
        """Model `isinstance`."""
        return is_instance(self, value, cls)

    # -- exceptions ----------------------------------------------------------------------------------------------

    def exception(self, cls: type[BaseException], args: Sequence[Value]) -> Object:
        """Return the model of a new exception."""
        return Object(cls, base=Tuple(args), birth=self.step)

    def exception_from(self, error: BaseException) -> Object:
        """Return the model of an exception that a real operation raised."""
        return self.exception(type(error), [self.from_python(arg) for arg in error.args])

    def raise_error(self, cls: type[BaseException], message: str) -> NoReturn:
        """Raise in the traced program."""
        self.raise_model(cls, [Const(message)])

    def raise_model(self, cls: type[BaseException], args: Sequence[Value]) -> NoReturn:
        """Raise in the traced program, with models as arguments."""
        made = self.exception(cls, args)
        self.set_context(made)
        raise Raised(made)

    def handled(self) -> Value | None:
        """Return the exception that is being handled, as `sys.exception()` does; None where the caller handles none."""
        found = self.handling or self.handling_outside
        if found is None:
            rely_on_calm_caller(self)
        return found

    def set_context(self, made: Value) -> None:
        """Remember what is being handled as the context of a raised exception; cut the chain where it would close."""
        assert isinstance(made, Object)
        handled = self.handling or self.handling_outside
        if handled is made:
            return
        if handled is None:
            leave_context(self, made)
            return
        link: Value | None = handled
        while isinstance(link, Object):
            behind = link.written.get("__context__")
            if behind is made:
                link.written["__context__"] = NONE
                break
            link = behind
        made.written["__context__"] = handled

    def is_exception(self, value: Value, cls: Any) -> bool:
        """Tell whether an exception is of a class."""
        return issubclass(value.type(), cls)

    def matches_exception(self, value: Value, wanted: Value) -> bool:
        """Model `except wanted`."""
        classes = wanted.items if isinstance(wanted, Tuple) else [wanted]
        for cls in classes:
            if not isinstance(cls, ClassValue) or BaseException not in cls.value.__mro__:
                raise Break("tracer.exception", "an except clause names something that isn't an exception class")
        kind = value.type()
        found = [c.value for c in classes if isinstance(c, ClassValue) and self.is_subclass(kind, c.value)]
        return any(cls in kind.__mro__ for cls in found)  # who is only registered isn't caught

    def exception_to_raise(self, value: Value, cls: Value) -> Value:
        """Return the instance that `raise value` or `throw(cls, value)` raises."""
        if isinstance(value, ClassValue):
            value = self.call(value, [], {})
        elif isinstance(value, Const) and value.value is None:
            value = self.call(cls, [], {})
        if not isinstance(value, Object) or not issubclass(value.cls, BaseException):
            raise Break("tracer.exception", f"{value.describe()} is raised")
        return value

    def raise_statement(self, parts: Sequence[Value]) -> NoReturn:
        """Model `raise`, `raise x` and `raise x from y`."""
        if not parts:
            handled = self.handled()
            if handled is None:
                self.raise_error(RuntimeError, "No active exception to reraise")
            raise Raised(handled)
        made = self.exception_to_raise(parts[0], parts[0])
        assert isinstance(made, Object)
        if made.existing:
            raise Break("tracer.exception", "an exception made before the call is raised")
        self.changes += 1
        if len(parts) > 1:
            cause = parts[1]
            made.written["__cause__"] = cause if cause is NONE else self.exception_to_raise(cause, cause)
            made.written["__suppress_context__"] = Const(True)
        self.set_context(made)
        raise Raised(made)

    # -- special look-ups ----------------------------------------------------------------------------------------

    def bound_builtin(self, owner: Value, name: str) -> Value:
        """Return a method of a built-in class."""
        return BoundBuiltin(owner, name)

    def special_method(self, owner: Value, name: str) -> Value:
        """Return a special method bound to its object."""
        if not isinstance(owner, Object):
            return owner.get_attribute(self, name)
        found = self.find_in_class(owner.cls, name)
        if found is None:
            raise Break("tracer.exception", f"{owner.describe()} has no {name}")
        return self.bound_to_instance(owner, owner.cls, name, found[0])

    def slice_class(self, cls: Any) -> Any:
        """Return the class of a slice or multiple of a tuple subclass."""
        return tuple if cls is tuple else self.extension.sequence_class(cls, None)

    def joined_class(self, left: Any, right: Any) -> Any:
        """Return the class of the sum of two tuples."""
        return tuple if left is right is tuple else self.extension.sequence_class(left, right)

    def unpack_exactly(self, value: Value, count: int) -> list[Value]:
        """Return exactly `count` elements."""
        if self.is_read_whole(value):
            found = self.unpack(value)
        else:
            found = []
            iterator = value.iterate(self)
            while len(found) <= count and (element := iterator.advance(self)) is not None:
                found.append(element)
        if len(found) > count:
            self.raise_error(ValueError, f"too many values to unpack (expected {count})")
        if len(found) < count:
            self.raise_error(ValueError, f"not enough values to unpack (expected {count}, got {len(found)})")
        return found

    def match_class(self, subject: Value, cls: Value, count: int, names: Sequence[Value]) -> Value:
        """Model a class pattern: the attributes, or None when it doesn't match."""
        if not isinstance(cls, ClassValue):
            raise Break("tracer.exception", "a class pattern names something that isn't a class")
        if not self.is_instance(subject, cls):
            return NONE
        wanted = [str(name.as_python()) for name in names]
        positional: list[str] = []
        if count:
            if type(getattr(cls.value, "__match_args__", ())) is not tuple:
                raise Break("tracer.exception", f"{cls.describe()}.__match_args__ isn't a tuple")
            if not hasattr(cls.value, "__match_args__"):
                if count == 1 and cls.value.__flags__ & (1 << 22):  # the class matches itself
                    return Tuple([subject, *[subject.get_attribute(self, name) for name in wanted]])
                raise Break("tracer.exception", f"{cls.describe()} has no __match_args__")
            positional = list(cls.value.__match_args__[:count])
            if len(positional) < count:
                raise Break("tracer.exception", f"{cls.describe()} takes fewer positional patterns")
        found = []
        every = [*positional, *wanted]
        if len(set(every)) != len(every) or not all(isinstance(name, str) for name in every):
            raise Break("tracer.exception", f"a pattern for {cls.describe()} repeats an attribute")
        for name in every:
            if not self.has_attribute(subject, name):
                return NONE
            found.append(subject.get_attribute(self, name))
        return Tuple(found)

    # -- imports -------------------------------------------------------------------------------------------------

    def import_module(self, names: Globals, name: str, level: int, wanted: Any) -> Value:
        """Model an import statement of a module that is loaded."""
        real = names.real or {}
        if level:
            package = real.get("__package__") or ""
            name = importlib.util.resolve_name("." * level + name, package)
        module = sys.modules.get(name)
        if module is None:
            raise Break("tracer.import", f"module {name!r} isn't loaded yet")
        if not wanted:
            if level:
                raise Break("tracer.import", f"module {name!r} is imported relatively")
            name = name.partition(".")[0]
        return self.loaded_module(name)

    def loaded_module(self, name: str) -> Value:
        """Model a module that is loaded; one that may be patched is guarded."""
        return self.wrap(sys.modules[name], None if is_trusted(name) else self.sources.module(name))

    def import_from(self, module: Value, name: str) -> Value:
        """Model `from module import name`."""
        if not isinstance(module, ModuleValue) or name in module.value.__dict__:
            return module.get_attribute(self, name)
        submodule = f"{module.value.__name__}.{name}"
        return self.loaded_module(submodule) if submodule in sys.modules else module.get_attribute(self, name)
