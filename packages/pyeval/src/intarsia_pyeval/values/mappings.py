"""Dictionaries and their views.

Of an existing dict only the keys that are asked for are modelled, unless its order or size matters. Changes of an
existing dict are kept as a log of stores and deletions, so that its order comes out as in eager.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import ATOMS, NONE, boolean, is_none
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Dict", "DictView"]

_MISSING = object()
_PLAIN_LOOKUPS = frozenset(
    {dict.__getitem__, collections.OrderedDict.__getitem__, collections.defaultdict.__getitem__,
     types.MappingProxyType.__getitem__}
)  # fmt: skip


def _compared(look: Callable[..., Any], *args: Any) -> Any:
    """Look a key up; break where comparing keys raises, as an array does with a number that is the array's `id`."""
    try:
        return look(*args)
    except RecursionError:
        raise
    except RuntimeError as error:
        raise Break("tracer.hashing", f"comparing keys raises {error}") from None


class Dict(Value):
    """A dict, OrderedDict or defaultdict.

    Args:
        entries: Key -> (model of the key, model of the value), in order.
        cls: The class.
        real: The existing dict.
        factory: The default factory of a defaultdict.
    """

    __slots__ = ("_entries", "_log", "_whole", "checked", "cls", "deletions", "factory", "real")

    def __init__(
        self,
        entries: Mapping[Hashable, tuple[Value, Value]] | None = None,
        cls: Any = dict,
        source: Source | None = None,
        real: Any = None,
        factory: Value = NONE,
    ) -> None:
        self.source = source
        self.cls = cls
        self.real = real
        self.factory = factory
        self.deletions = 0  # so far; an iterator notices them
        self.checked = False
        self._entries: dict[Hashable, tuple[Value, Value]] = dict(entries or {})
        self._whole = real is None  # whether _entries is complete and in order
        self._log: dict[Hashable, tuple[bool, Value, Value | None]] = {}  # key -> (delete first, key, new value)

    # -- reading -------------------------------------------------------------------------------------------------

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing dict."""
        found: object | None = self.real
        return found

    def item_source(self, tx: Tracer, key: Hashable) -> Source | None:
        """Return where a later call finds the value of `key`."""
        if self.source is None:
            return None
        own = self.real is None or type(self.real).__getitem__ in _PLAIN_LOOKUPS
        return tx.sources.item(self.source, key) if own else tx.sources.dict_item(self.source, key)

    def find(self, tx: Tracer, key: Hashable) -> Value | None:
        """Return the value of `key`, or None when there is none."""
        self._check_current(tx)
        found = self._entry(key)
        if found is not None or self._whole:
            return found[1] if found else None
        logged = self._log.get(key)
        if logged is not None:  # deleted: a stored key would be in _entries
            return None
        real = self.real
        assert real is not None
        if self.cls is not dict:
            self.entries(tx)
            return self.find(tx, key)
        self.check_keys(tx)
        value: Any = dict.get(real, key, _MISSING)
        if value is _MISSING:
            self.guard_absent(tx, key)
            return None
        model = tx.live.wrap(value, self.item_source(tx, key))
        self._entries[key] = (tx.live.key_value(key), model)
        return model

    def is_plain(self) -> bool:
        """Tell whether it isn't that of an existing instance of a subclass."""
        return self.real is None or type(self.real) is self.cls

    def known_length(self) -> int:
        """Return the number of entries, once all are known; -1 before."""
        return len(self._entries) if self._whole else -1

    def _entry(self, key: Hashable) -> tuple[Value, Value] | None:
        """Return the entry of a key, where comparing keys tells: an array has the hash of its `id`, and compares."""
        found: tuple[Value, Value] | None = _compared(self._entries.get, key)
        return found

    def _check_current(self, tx: Tracer) -> None:
        """Break if what a read-only view shows was changed meanwhile: the view has a model of its own."""
        if self.cls is types.MappingProxyType and self.real is not None:
            shown = tx.live.known(gc.get_referents(self.real)[0])
            if shown is not None and shown in tx.effects.dirty:
                raise Break("tracer.mutation", "a mappingproxy is read after its dict was changed")

    def guard_absent(self, tx: Tracer, key: Hashable) -> None:
        """Rely on `key` being missing from the existing dict."""
        if self.source is not None:
            tx.identities.missing_key(self.source, key)

    def check_keys(self, tx: Tracer) -> None:
        """Break if looking something up in the existing dict may run user code: hashes or equalities of its keys."""
        if not self.checked:
            assert self.real is not None
            with tx.identities.unnoted():
                for key, _ in plain_items(self.real):
                    if type(key) not in ATOMS:
                        tx.live.key(key)
            self.checked = True

    def entries(self, tx: Tracer) -> dict[Hashable, tuple[Value, Value]]:
        """Return all entries in order; relies on the keys of an existing dict."""
        self._check_current(tx)
        if self._whole:
            return self._entries
        assert self.real is not None
        real = plain_items(self.real)
        if self.source is not None:
            tx.guards.add(GuardKind.DICT_KEYS, self.source, tuple(key for key, _ in real))
        known, whole = self._entries, {}
        self.check_keys(tx)
        for key, value in real:
            deleted_first, _, stored = self._log.get(key, (False, NONE, NONE))
            if deleted_first or stored is None:
                continue
            whole[key] = known.get(key) or (tx.live.key_value(key), tx.live.wrap(value, self.item_source(tx, key)))
        for key, (_, model, stored) in self._log.items():
            if stored is not None:
                whole[key] = (model, stored)
        self._entries, self._whole = whole, True
        return whole

    def as_python(self) -> Any:
        """Return a copy, if it is complete and every part is known."""
        if not self._whole:
            raise NotConstantError("an existing dict")
        made = {k.as_python(): v.as_python() for k, v in self._entries.values()}
        if self.cls is collections.defaultdict:
            return collections.defaultdict(self.factory.as_python(), made)
        return made if self.cls is dict else self.cls(made)

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are entries."""
        return bool(self.entries(tx))

    def length(self, tx: Tracer) -> int:
        """Return the number of entries."""
        return len(self.entries(tx))

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Look the key up."""
        return self.find(tx, item.hash_key(tx)) is not None

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Look the key up; a defaultdict makes what is missing."""
        found = self.find(tx, key.hash_key(tx))
        if found is not None:
            return found
        if not is_none(self.factory):
            made = tx.call(self.factory, [], {})
            self.set_item(tx, key, made)
            return made
        tx.raising.throw(KeyError, [key])

    def iterate(self, tx: Tracer) -> Value:
        """Iterate over the keys."""
        return tx.iterator_over(DictView(self, "keys"))

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.factory
        if name == "__class__":
            return tx.live.from_python(self.cls)
        if not defines(self.cls, name):
            tx.classes.rely_on_absence(self, self.cls, name)
            tx.raising.error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method."""
        method = METHODS.get(name)
        if method is None:
            return tx.operator_method(self, name, args, keywords)
        return method(self, tx, list(args), keywords)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare two dicts without regard to order."""
        if not isinstance(other, Dict) or op not in ("==", "!="):
            return None
        mine, yours = self.entries(tx), other.entries(tx)
        equal = len(mine) == len(yours) and all(
            key in yours and tx.same_or_equal(value, yours[key][1]) for key, (_, value) in list(mine.items())
        )
        if self.cls is other.cls is collections.OrderedDict:
            equal = equal and list(mine) == list(yours)
        return boolean(equal is (op == "=="))

    # -- changing ------------------------------------------------------------------------------------------------

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Store under `key`."""
        self.store(tx, key.hash_key(tx), key, value)

    def store(self, tx: Tracer, hashed: Hashable, key: Value, value: Value) -> None:
        """Store under a key whose hash key is known."""
        self._check_writable()
        self._check_dropped(tx, hashed)
        tx.effects.changed(self)
        old = self._entry(hashed)
        self._entries[hashed] = (old[0] if old else key, value)
        if self.real is not None:
            logged = self._log.get(hashed)
            if logged is not None and logged[2] is None:
                del self._log[hashed]  # it was deleted: the key comes back at the end
            self._log[hashed] = (logged is not None and logged[0], key, value)

    def _check_dropped(self, tx: Tracer, hashed: Hashable) -> None:
        """Leave the frame to CPython if the value that goes runs code of the user when it ends."""
        if self.real is None:
            return
        old = None if _compared(self._log.__contains__, hashed) else _compared(dict.get, self.real, hashed)
        tx.effects.let_go([] if old is None else [old])

    def _check_writable(self) -> None:
        """Refuse to change a read-only view."""
        if self.cls is types.MappingProxyType:
            raise Break("tracer.exception", "a mappingproxy is changed")

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Delete `key`."""
        if self.remove(tx, key.hash_key(tx), key) is None:
            tx.raising.throw(KeyError, [key])

    def miss(self, tx: Tracer, key: Value) -> NoReturn:
        """Raise the KeyError of removal by name: an OrderedDict gives it a tuple for its arguments, None for none."""
        if self.cls is not collections.OrderedDict:
            tx.raising.throw(KeyError, [key])
        tx.raising.throw(KeyError, [] if is_none(key) else key.items if isinstance(key, Tuple) else [key])

    def remove(self, tx: Tracer, hashed: Hashable, key: Value) -> Value | None:
        """Delete a key whose hash key is known; return its value, or None when there was none."""
        found = self.find(tx, hashed)
        if found is None:
            return None
        self._check_writable()
        self._check_dropped(tx, hashed)
        tx.effects.changed(self)
        self.deletions += 1
        del self._entries[hashed]
        if self.real is not None:
            self._log.pop(hashed, None)
            if dict.__contains__(self.real, hashed):
                self._log[hashed] = (True, key, None)
        return found

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Merge two dicts."""
        if op != "|" or not isinstance(other, Dict):
            return None
        if types.MappingProxyType in (self.cls, other.cls):
            raise Break("tracer.operator", "merging a mappingproxy isn't modelled")
        left, right = (other, self) if swapped else (self, other)
        made = Dict(left.entries(tx), self.cls, factory=self.factory)
        for hashed, (key, value) in right.entries(tx).items():
            made.store(tx, hashed, key, value)
        return made

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model `|=`."""
        if op != "|":
            return None
        _update(self, tx, [other], {})
        return self

    # -- building ------------------------------------------------------------------------------------------------

    def reconstruct(self, out: Builder) -> None:
        """Build the dict; empty first when a value may refer back to it."""
        entries = list(self._entries.values())
        if self.cls is dict and all(out.is_leaf(value) for _, value in entries):
            out.build_map(entries)
            return
        self._empty(out)
        out.remember(self)
        for key, value in entries:
            out.emit("COPY", 1)
            out.store_item(value, key)

    def _empty(self, out: Builder) -> None:
        """Push an empty dict of the class."""
        if self.cls is dict:
            out.emit("BUILD_MAP", 0)
        elif self.cls is collections.OrderedDict:
            out.call(lambda: out.constant(self.cls), [])
        elif self.cls is collections.defaultdict:
            out.call(lambda: out.constant(self.cls), [lambda: out.load(self.factory)])
        else:
            raise Unreconstructable(f"a {self.cls.__name__} can't be built by bytecode")

    def emit_effects(self, out: Builder) -> None:
        """Replay deletions and stores."""
        for first, key, value in self._log.values():
            if first:
                out.load(self)
                out.load(key)
                out.emit("DELETE_SUBSCR")
            if value is not None:
                out.load(self)
                out.store_item(value, key)


def plain_items(real: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a real dict in order, past what a subclass overrides; no key is hashed or compared."""
    if issubclass(type(real), types.MappingProxyType):
        return list(real.items())
    items = collections.OrderedDict.items if issubclass(type(real), collections.OrderedDict) else dict.items
    return list(items(real))


Method = Callable[[Dict, "Tracer", list[Value], Keywords], Value]


def _get(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    key, *rest = arity("get", args, keywords, 1, 2)
    found = self.find(tx, key.hash_key(tx))
    return found if found is not None else (rest[0] if rest else NONE)


def _view(name: str) -> Method:
    def method(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
        arity(name, args, keywords, 0)
        return DictView(self, name)

    return method


def _pop(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    if self.cls is collections.OrderedDict:
        given = named("pop", args, keywords, ("key", "default"), required=1)
        args, keywords = [given["key"], *[given[name] for name in ("default",) if name in given]], {}
    key, *rest = arity("pop", args, keywords, 1, 2)
    found = self.remove(tx, key.hash_key(tx), key)
    if found is not None:
        return found
    if rest:
        return rest[0]
    self.miss(tx, key)


def _popitem(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    ordered = self.cls is collections.OrderedDict
    given = named("popitem", args, keywords, ("last",) if ordered else ())
    last = tx.truth(given["last"]) if given else True
    entries = self.entries(tx)
    if not entries:
        tx.raising.error(KeyError, "dictionary is empty" if ordered else "popitem(): dictionary is empty")
    hashed = next(reversed(entries)) if last else next(iter(entries))
    key, value = entries[hashed]
    self.remove(tx, hashed, key)
    return Tuple([key, value])


def _setdefault(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    if self.cls is collections.OrderedDict:
        given = named("setdefault", args, keywords, ("key", "default"), required=1)
        args, keywords = [given["key"], *[given[name] for name in ("default",) if name in given]], {}
    key, *rest = arity("setdefault", args, keywords, 1, 2)
    found = self.find(tx, key.hash_key(tx))
    if found is None:
        found = rest[0] if rest else NONE
        self.set_item(tx, key, found)
    return found


def _update(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("update", args, {}, 0, 1)
    for hashed, key, value in tx.pairs(args[0]) if args else ():
        self.store(tx, hashed, key, value)
    for name, value in keywords.items():
        self.store(tx, name, tx.live.from_python(name), value)
    return NONE


def _init(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    if self.cls is collections.defaultdict and self.real is None:
        self.factory, args = (args[0], args[1:]) if args else (NONE, args)
        if not is_none(self.factory) and tx.classes.find(self.factory.type(), "__call__") is None:
            raise Break("tracer.exception", "the first argument of defaultdict must be callable or None")
    elif self.cls is collections.defaultdict:
        raise Break("tracer.mutation", "a defaultdict is initialised again")
    return _update(self, tx, args, keywords)


def _clear(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("clear", args, keywords, 0)
    for hashed, (key, _) in list(self.entries(tx).items()):
        self.remove(tx, hashed, key)
    return NONE


def _copy(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return Dict(self.entries(tx), self.cls, factory=self.factory)


def _move_to_end(self: Dict, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    given = named("move_to_end", args, keywords, ("key", "last"), required=1)
    key, last = given["key"], given.get("last")
    if last is not None and not tx.truth(last):
        raise Break("tracer.mutation", "moving a key to the front of an OrderedDict isn't modelled")
    value = self.remove(tx, key.hash_key(tx), key)
    if value is None:
        self.miss(tx, key)
    self.set_item(tx, key, value)
    return NONE


METHODS: dict[str, Method] = {
    "__init__": _init,
    "clear": _clear,
    "copy": _copy,
    "get": _get,
    "items": _view("items"),
    "keys": _view("keys"),
    "move_to_end": _move_to_end,
    "pop": _pop,
    "popitem": _popitem,
    "setdefault": _setdefault,
    "update": _update,
    "values": _view("values"),
}


class DictView(Value):
    """The keys, values or items of a dict."""

    __slots__ = ("base", "what")

    def __init__(self, base: Dict, what: str) -> None:
        self.source = None
        self.base = base
        self.what = what

    def type(self) -> Any:
        """Return the class of the view."""
        return type(self.empty())

    def empty(self) -> Any:
        """Return a real view of this kind, of nothing."""
        made: Any = {} if self.base.cls is types.MappingProxyType else self.base.cls()
        return getattr(made, self.what)()

    def elements(self, tx: Tracer) -> list[Value]:
        """Return what iteration gives now."""
        entries = self.base.entries(tx).values()
        if self.what == "items":
            return [Tuple(entry) for entry in entries]
        return [entry[0 if self.what == "keys" else 1] for entry in entries]

    def length(self, tx: Tracer) -> int:
        """Return the length of the dict."""
        return self.base.length(tx)

    def truth(self, tx: Tracer) -> bool:
        """Tell whether the dict has entries."""
        return self.base.truth(tx)

    def iterate(self, tx: Tracer) -> Value:
        """Iterate."""
        return tx.iterator_over(self)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Look up a key, or compare with the elements."""
        if self.what == "keys":
            return self.base.contains(tx, item)
        return any(tx.same_or_equal(element, item) for element in self.elements(tx))

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if not defines(self.type(), name):
            tx.raising.error(AttributeError, f"{self.type().__name__!r} object has no attribute {name!r}")
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a set method of a keys view, or an operator by its name."""
        if name == "isdisjoint" and self.what == "keys":
            return self._as_set(tx).call_method(tx, name, args, keywords)
        return tx.operator_method(self, name, args, keywords)

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Model the set operators of keys."""
        if self.what == "values" or op not in ("&", "|", "-", "^"):
            return None
        if self.what == "items":
            raise Break("tracer.operator", f"{op} of the items of a dict isn't modelled")
        operand = other if isinstance(other, SetValue) else SetValue.made(tx, set, other)
        return self._as_set(tx).binary(tx, op, operand, swapped)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare keys or items as a set."""
        if self.what == "values":
            return None
        if isinstance(other, DictView) and other.what != "values":
            other = other._as_set(tx)
        return self._as_set(tx).compare(tx, op, other) if isinstance(other, SetValue) else None

    def _as_set(self, tx: Tracer) -> SetValue:
        """Return the keys or items as a set."""
        return SetValue.made(tx, set, self.base) if self.what == "keys" else SetValue.of(tx, self.elements(tx))

    def reconstruct(self, out: Builder) -> None:
        """Ask the dict for the view, past what a subclass overrides."""
        if self.base.is_plain():
            out.load(self.base)
            out.call_method(self.what, [])
            return
        method = getattr(self.base.cls, self.what)
        out.call(lambda: out.emit("LOAD_CONST", method), [lambda: out.load(self.base)])
