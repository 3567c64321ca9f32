"""Iterators, with their state: they can be advanced while tracing and built again at a break."""

from __future__ import annotations

import collections
import types
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break, Raised, Unreconstructable
from intarsia_pyeval.exceptions import exception_to_raise
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.mappings import DictView
from intarsia_pyeval.values.sequences import Items, List, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.evaluate import EvaluatedFrame
    from intarsia_pyeval.state.live import Live
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Backwards", "Enumerate", "Filter", "Generator", "Iterator", "Map", "Position", "Reversed", "Zip"]


_AFTER_YIELD_FROM = 2  # argument of the RESUME behind it


class Iterator(Value):
    """What all iterators have in common. `birth` is the outermost step that made it."""

    __slots__ = ("birth",)

    def __init__(self, birth: int) -> None:
        self.source = None
        self.birth = birth

    def truth(self, tx: Tracer) -> bool:
        """Iterators have no length: they are true."""
        return True

    def iterate(self, tx: Tracer) -> Value:
        """An iterator is its own iterator."""
        return self

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Advance until the item is found."""
        while (element := self.advance(tx)) is not None:
            if tx.same_or_equal(element, item):
                return True
        return False

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if not defines(self.type(), name):
            tx.raising.error(AttributeError, f"{self.type().__name__!r} object has no attribute {name!r}")
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call `__next__` or `__iter__`."""
        named(name, (), keywords, ())
        if name == "__next__" and not args:
            return tx.next_or_stop(self)
        if name == "__iter__" and not args:
            return self
        return super().call_method(tx, name, args, keywords)

    def reconstruct(self, out: Builder) -> None:
        """Most iterators can't be built in the middle."""
        raise Unreconstructable(f"{self.describe()} is live, and can't be built in the middle", self.birth)


class Position(Iterator):
    """An iterator over a sequence, atom or dict view, by position."""

    __slots__ = ("at", "keys", "over", "size", "state")

    def __init__(self, over: Value, birth: int, at: int = 0) -> None:
        super().__init__(birth)
        self.over = over
        self.keys: list[Hashable] | None = None  # of a dict view or set, once iteration began
        self.size = -1  # of the dict or set when the iterator was made; -1 after a change of it was noticed
        self.state: Any = None  # of the dict, set or deque then: deletions, recipe, version
        self.at = at  # -1: exhausted for good, as CPython's are

    def begin(self, tx: Tracer) -> None:
        """Note the state of what is iterated over: changes of it are noticed later."""
        over = self.over
        if isinstance(over, DictView):
            self.keys = list(over.base.entries(tx))
            self.size, self.state = len(self.keys), over.base.deletions
        elif isinstance(over, SetValue):
            self.size, self.state = len(over.elements), over.recipe
        elif isinstance(over, Deque):
            self.state = over.version

    def type(self) -> Any:
        """Return the class of the real iterator."""
        if isinstance(self.over, Const):
            return type(iter(self.over.value))
        if isinstance(self.over, DictView):
            return type(iter(self.over.empty()))
        if isinstance(self.over, SetValue):
            return type(iter(set()))
        if isinstance(self.over, Deque):
            return type(iter(collections.deque()))
        return type(iter(self.over.type()())) if self.over.type() in (list, tuple) else type(iter(()))

    def advance(self, tx: Tracer) -> Value | None:
        """Return the next element."""
        tx.effects.advanced()
        over = self.over
        if isinstance(over, Deque) and over.version != self.state:
            tx.raising.error(RuntimeError, "deque mutated during iteration")
        if self.at < 0:
            return None
        if isinstance(over, Items):
            found = over.at(self.at) if self.at < over.count() else None
        elif isinstance(over, Const):
            found = _item_of(tx.live, over.value, self.at)
        elif isinstance(over, SetValue):
            found = self._of_set(tx, over)
        else:
            found = self._of_view(tx)
        self.at = -1 if found is None else self.at + 1
        return found

    def _of_set(self, tx: Tracer, over: SetValue) -> Value | None:
        """Return the next element of a set, which must keep its size meanwhile."""
        if self.size != len(over.elements):
            self.size = -1  # it is noticed for good
            tx.raising.error(RuntimeError, "Set changed size during iteration")
        if self.state is not over.recipe:
            raise Break("tracer.mutation", "a set is changed during iteration")
        if self.keys is None:
            self.keys = list(over.in_order(tx))
        found = self.keys[self.at] if self.at < len(self.keys) else None
        return found if isinstance(found, Value) else None

    def _of_view(self, tx: Tracer) -> Value | None:
        """Return the next element of a dict view; the dict must keep its keys meanwhile."""
        assert isinstance(self.over, DictView)
        entries = self.over.base.entries(tx)
        if self.keys is None:
            self.begin(tx)
        assert self.keys is not None
        if self.size != len(entries):
            self.size = -1  # it is noticed for good
            tx.raising.error(RuntimeError, "dictionary changed size during iteration")
        if self.state != self.over.base.deletions:
            raise Break("tracer.mutation", "keys of a dictionary are deleted during iteration")
        if self.at >= len(self.keys):
            return None
        entry = entries.get(self.keys[self.at])
        if entry is None:
            raise Break("tracer.mutation", "a dictionary changed its keys during iteration")
        return Tuple(entry) if self.over.what == "items" else entry[0 if self.over.what == "keys" else 1]

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Also model `__setstate__`, which resume functions use."""
        state = args[0].as_python() if name == "__setstate__" and len(args) == 1 and not keywords else None
        if isinstance(state, int) and isinstance(self.over, Items):
            tx.effects.advanced()
            self.at = state
            return NONE
        if name == "__length_hint__" and isinstance(self.over, Items) and not args and not keywords:
            return Const(max(0, self.over.count() - self.at) if self.at >= 0 else 0)
        return super().call_method(tx, name, args, keywords)

    def carry(self) -> tuple[Value, ...] | None:
        """Carry what is iterated over, and the position."""
        if isinstance(self.over, Deque):
            same = self.over.version == self.state and self.at >= 0
            return (self.over, Const("__iter__"), Const(self.at), Const(self.over.count())) if same else None
        if isinstance(self.over, Items) and self.at >= 0:
            return self.over, Const(self.at)
        if isinstance(self.over, Const) and isinstance(self.over.value, range) and self.at >= 0:
            return (Const(self.over.value[self.at :]),)
        if isinstance(self.over, DictView) and self.over.base.is_plain() and self.keys is not None and self.at >= 0:
            return self.over.base, Const(self.over.what), Const(self.at), Const(self.size)
        return None

    def reconstruct(self, out: Builder) -> None:
        """Make an iterator and set its position."""
        over = self.over
        if self.at < 0:
            over, at = Tuple(()), 0
        elif isinstance(over, Const):
            over, at = Const(over.value[self.at :]), 0
        elif isinstance(over, Items) and not isinstance(over, Deque):
            at = self.at
        else:
            at = 0
            if self.at or self._is_stale():
                super().reconstruct(out)
        out.load(over)
        out.emit("GET_ITER")
        if at:
            out.set_state(partial(out.constant, at))

    def _is_stale(self) -> bool:
        """Tell whether what is iterated over was changed since."""
        over = self.over
        if isinstance(over, DictView):
            return self.state != over.base.deletions or self.size != over.base.known_length()
        if isinstance(over, SetValue):
            return self.state is not over.recipe
        return isinstance(over, Deque) and self.state != over.version


def _item_of(live: Live, value: Any, at: int) -> Value | None:
    """Return an item of a string, bytes or range; a range may be longer than `len` can say."""
    try:
        return live.from_python(value[at])
    except IndexError:
        return None


class Backwards(Position):
    """`reversed` of a deque, or of a dict or a view of it."""

    __slots__ = ()

    def type(self) -> Any:
        """Return the class of the real iterator."""
        made: Any = self.over.empty() if isinstance(self.over, DictView) else collections.deque()
        return type(reversed(made))

    def begin(self, tx: Tracer) -> None:
        """Note the state of what is iterated over, and go through its keys from the last."""
        super().begin(tx)
        if self.keys is not None:
            self.keys.reverse()
        elif isinstance(self.over, Deque):
            self.size = self.over.count()

    def advance(self, tx: Tracer) -> Value | None:
        """Return the element before."""
        over = self.over
        if not isinstance(over, Deque):
            return super().advance(tx)
        tx.effects.advanced()
        if over.version != self.state:
            tx.raising.error(RuntimeError, "deque mutated during iteration")
        if self.at >= self.size:
            return None
        self.at += 1
        return over.at(self.size - self.at)

    def carry(self) -> tuple[Value, ...] | None:
        """It isn't made again."""
        return None

    def reconstruct(self, out: Builder) -> None:
        """Reverse what wasn't looked at yet."""
        if self.at or self._is_stale():
            Iterator.reconstruct(self, out)
        out.call(lambda: out.constant(reversed), [lambda: out.load(self.over)])


class Enumerate(Iterator):
    """`enumerate`."""

    __slots__ = ("count", "inner")

    def __init__(self, inner: Value, count: int, birth: int) -> None:
        super().__init__(birth)
        self.inner = inner
        self.count = count

    def type(self) -> Any:
        """Return enumerate."""
        return enumerate

    def advance(self, tx: Tracer) -> Value | None:
        """Return the next pair."""
        tx.effects.advanced()
        element = tx.advance(self.inner)
        if element is None:
            return None
        self.count += 1
        return Tuple([Const(self.count - 1), element])

    def carry(self) -> tuple[Value, ...] | None:
        """Carry what the inner iterator carries, and the count."""
        inner = self.inner.carry()
        return None if inner is None else (*inner, Const(self.count))

    def reconstruct(self, out: Builder) -> None:
        """Enumerate the rest."""
        out.call(lambda: out.constant(enumerate), [lambda: out.load(self.inner), lambda: out.constant(self.count)])


class Zip(Iterator):
    """`zip`."""

    __slots__ = ("inner", "strict")

    def __init__(self, inner: Sequence[Value], strict: bool, birth: int) -> None:
        super().__init__(birth)
        self.inner = tuple(inner)
        self.strict = strict

    def type(self) -> Any:
        """Return zip."""
        return zip

    def advance(self, tx: Tracer) -> Value | None:
        """Return the next tuple; the first iterator that ends, ends all."""
        tx.effects.advanced()
        found = []
        for number, iterator in enumerate(self.inner):
            element = tx.advance(iterator)
            if element is None:
                self._check(tx, number)
                return None
            found.append(element)
        return Tuple(found) if found else None

    def _check(self, tx: Tracer, ended: int) -> None:
        """With strict, the others must end too."""
        if not self.strict:
            return
        if ended:
            tx.raising.error(ValueError, f"zip() argument {ended + 1} is shorter than {_arguments(ended)}")
        for number, iterator in enumerate(self.inner[1:], 1):
            if tx.advance(iterator) is not None:
                tx.raising.error(ValueError, f"zip() argument {number + 1} is longer than {_arguments(number)}")

    def reconstruct(self, out: Builder) -> None:
        """Zip the rests."""
        if self.strict:
            super().reconstruct(out)
        out.call(lambda: out.constant(zip), [partial(out.load, i) for i in self.inner])


def _arguments(count: int) -> str:
    """Return how CPython names the first arguments of zip."""
    return "argument 1" if count == 1 else f"arguments 1-{count}"


class Map(Iterator):
    """`map`."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: Sequence[Value], birth: int) -> None:
        super().__init__(birth)
        self.function = function
        self.inner = tuple(inner)

    def type(self) -> Any:
        """Return map."""
        return map

    def advance(self, tx: Tracer) -> Value | None:
        """Call the function with the next elements."""
        tx.effects.advanced()
        found = []
        for iterator in self.inner:
            element = tx.advance(iterator)
            if element is None:
                return None
            found.append(element)
        return tx.call(self.function, found, {})

    def reconstruct(self, out: Builder) -> None:
        """Map the rests."""
        parts = [self.function, *self.inner]
        out.call(lambda: out.constant(map), [partial(out.load, p) for p in parts])


class Filter(Iterator):
    """`filter`."""

    __slots__ = ("function", "inner")

    def __init__(self, function: Value, inner: Value, birth: int) -> None:
        super().__init__(birth)
        self.function = function
        self.inner = inner

    def type(self) -> Any:
        """Return filter."""
        return filter

    def advance(self, tx: Tracer) -> Value | None:
        """Return the next element that the function accepts."""
        tx.effects.advanced()
        while (element := tx.advance(self.inner)) is not None:
            plain = isinstance(self.function, Const)
            if tx.truth(element if plain else tx.call(self.function, [element], {})):
                return element
        return None

    def reconstruct(self, out: Builder) -> None:
        """Filter the rest."""
        out.call(lambda: out.constant(filter), [lambda: out.load(self.function), lambda: out.load(self.inner)])


class Reversed(Iterator):
    """`reversed` of a list, tuple or range; goes by position from the end."""

    __slots__ = ("at", "over")

    def __init__(self, over: Value, at: int, birth: int) -> None:
        super().__init__(birth)
        self.over = over
        self.at = at

    def type(self) -> Any:
        """Return the class of the real iterator."""
        return type(reversed(self.over.type()())) if self.over.type() in (list, dict) else reversed

    def advance(self, tx: Tracer) -> Value | None:
        """Return the element before."""
        tx.effects.advanced()
        if self.at < 0:
            return None
        if isinstance(self.over, Items):
            found = self.over.at(self.at) if self.at < self.over.count() else None
        else:
            found = self._asked(tx)
        self.at = -1 if found is None else self.at - 1
        return found

    def _asked(self, tx: Tracer) -> Value | None:
        """Ask for the element; an object ends the iteration by an error, as it does when it is indexed from 0 on."""
        try:
            return tx.real_item(self.over, self.at)
        except Raised as raised:
            if not raised.is_a((IndexError, StopIteration)):
                raise
        return None

    def reconstruct(self, out: Builder) -> None:
        """Reverse what is left."""
        if not isinstance(self.over, Items) or isinstance(self.over, List):
            super().reconstruct(out)
        assert isinstance(self.over, Items)
        rest = Tuple(self.over.items[: self.at + 1])
        out.call(lambda: out.constant(reversed), [lambda: out.load(rest)])


class Generator(Iterator):
    """A generator whose body is evaluated step by step."""

    __slots__ = ("cls", "finished", "frame", "function", "handling", "running", "started")

    def __init__(self, frame: EvaluatedFrame, birth: int) -> None:
        super().__init__(birth)
        self.frame = frame
        self.cls: Any = types.GeneratorType
        self.started = False
        self.finished = False
        self.running = False
        self.handling: Value | None = None  # the exception that the body handles where it stopped

    def type(self) -> Any:
        """Return the generator type, or the class of the iterator that it stands for."""
        return self.cls

    def __del__(self) -> None:
        """The traced program holds the generator no longer: what it left open is closed after this instruction."""
        if self.is_open():
            self.frame.tx.frames.drop(self)

    def is_open(self) -> bool:
        """Tell whether closing it has an effect: it is suspended where an exception is handled."""
        if self.finished or self.running or not self.started:
            return False
        return self.frame.decoded.handlers[self.frame.at.index] is not None

    def advance(self, tx: Tracer) -> Value | None:
        """Run to the next yield."""
        tx.effects.advanced()
        try:
            return self.send(tx, NONE)
        except Raised as raised:
            if raised.is_a(StopIteration) and self.finished:
                return None
            raise

    def send(self, tx: Tracer, value: Value) -> Value:
        """Model `send`: returns what is yielded, raises StopIteration with the result at the end."""
        if self.finished:
            tx.raising.throw(StopIteration, [])
        self.frame.stack.append(value)
        self.started = True
        return self._run(tx, None)

    def throw(self, tx: Tracer, exception: Value) -> Value:
        """Model `throw` with an exception instance."""
        if self.finished or not self.started:
            self.finished = True
            raise Raised(exception)
        return self._run(tx, exception)

    def close(self, tx: Tracer) -> Value:
        """Model `close`."""
        if self.finished or not self.started:
            self.finished = True
            return NONE
        try:
            closing = tx.raising.new(GeneratorExit, [])
            tx.raising.set_context(closing)
            self._run(tx, closing)
        except Raised as raised:
            if raised.is_a((GeneratorExit, StopIteration)):
                return NONE
            raise
        raise Break("tracer.exception", "a generator ignored GeneratorExit")

    def _run(self, tx: Tracer, exception: Value | None) -> Value:
        """Run the frame until it yields, returns or raises."""
        tx.effects.advanced()
        if self.running:
            tx.raising.error(ValueError, "generator already executing")
        if exception is not None:
            self._throw_into_inner(tx, exception)
        self.running = True
        try:
            yielded, value = self._resume(tx, exception)
        except Raised as raised:
            self.finished = True
            if raised.is_a(StopIteration):
                raise Break("tracer.exception", "a generator raised StopIteration") from raised
            raise
        finally:
            self.running = False
        if yielded:
            tx.frames.open_generators |= self.is_open()
            return value
        self.finished = True
        tx.raising.throw(StopIteration, [] if isinstance(value, Const) and value.value is None else [value])

    def _resume(self, tx: Tracer, exception: Value | None) -> tuple[bool, Value]:
        """Run the frame on; tell whether it yielded, and what. It goes on handling what it handled."""
        before = tx.raising.enter(self.handling)
        try:
            if self.handling is not None and exception is not None:
                tx.raising.set_context(exception)  # it is raised where the generator stopped
            return tx.frames.resume(self.frame, exception)
        finally:
            self.handling = tx.raising.leave(before)

    def _throw_into_inner(self, tx: Tracer, exception: Value) -> None:
        """An exception reaches what `yield from` delegates to first: only closing is modelled."""
        following = self.frame.decoded.instructions[self.frame.pc]
        if following.op != "RESUME" or following.arg & 3 != _AFTER_YIELD_FROM:
            return
        inner = self.frame.stack[-1]
        if issubclass(exception.type(), GeneratorExit) and isinstance(inner, Iterator):
            if isinstance(inner, Generator):
                inner.close(tx)
            return
        raise Break("tracer.exception", f"{exception.describe()} is thrown into `yield from`")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call send, throw or close."""
        named(name, (), keywords, ())
        if name == "send" and len(args) == 1:
            return self.send(tx, args[0])
        if name == "close" and not args:
            return self.close(tx)
        if name == "throw" and args:
            return self.throw(tx, exception_to_raise(tx, args[1] if len(args) > 1 else args[0], args[0]))
        return super().call_method(tx, name, args, keywords)
