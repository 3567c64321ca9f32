"""Instructions that mean the same in CPython 3.11, 3.12 and 3.13."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

from intarsia_pyeval import namespaces, patterns
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode, Signal, Yielded
from intarsia_pyeval.exceptions import matches_exception, raise_statement
from intarsia_pyeval.iteration import unpack_exactly
from intarsia_pyeval.lookup import special_method
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.constants import NONE, Const, boolean, is_none
from intarsia_pyeval.values.functions import Cell, MadeFunction
from intarsia_pyeval.values.iterators import Generator
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Traceback
from intarsia_pyeval.values.sequences import List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["COMMON", "call", "compare", "for_iter", "make_function"]

_OPERATORS = ["+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"]
_IN_PLACE = len(_OPERATORS)


# ---- stack and names -------------------------------------------------------------------------------------------


def nothing(f: EvaluatedFrame, i: Instruction) -> None:
    """NOP, RESUME and the like."""


def pop_top(f: EvaluatedFrame, i: Instruction) -> None:
    """Drop the top."""
    f.stack.pop()


def push_null(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the empty slot of a call."""
    f.stack.append(NULL)


def copy(f: EvaluatedFrame, i: Instruction) -> None:
    """Copy an entry to the top."""
    f.stack.append(f.stack[-i.arg])


def swap(f: EvaluatedFrame, i: Instruction) -> None:
    """Swap the top with an entry."""
    f.stack[-i.arg], f.stack[-1] = f.stack[-1], f.stack[-i.arg]


def load_const(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a constant of the code."""
    f.stack.append(f.tx.live.constant(i.value))


def load_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a local."""
    f.stack.append(read_local(f, i.value))


def read_local(f: EvaluatedFrame, name: str) -> Value:
    """Return a local."""
    found = f.read(name)
    if found is not None:
        return found
    if name in f.cells:  # 3.13 loads cells as if they were locals
        return f.cells[name]
    f.tx.raising.error(
        UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
    )


def store_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a local."""
    f.locals[i.value] = f.stack.pop()


def delete_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete a local."""
    read_local(f, i.value)
    del f.locals[i.value]


def load_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a global or builtin, below it the empty slot of a call."""
    found = namespaces.global_or_builtin(f.tx, f.globals, i.value)
    if i.arg & 1:
        f.stack.append(NULL)
    f.stack.append(found)


def store_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a global."""
    f.globals.store(f.tx, i.value, Const(i.value), f.stack.pop())


def delete_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete a global."""
    if f.globals.remove(f.tx, i.value, Const(i.value)) is None:
        f.tx.raising.error(NameError, f"name {i.value!r} is not defined")


def make_cell(f: EvaluatedFrame, i: Instruction) -> None:
    """Make the cell of a variable; a parameter moves into it."""
    content = f.read(i.value)
    f.locals.pop(i.value, None)
    f.cells[i.value] = Cell(content, frame_name=i.value if f.outermost else None)


def copy_free_vars(f: EvaluatedFrame, i: Instruction) -> None:
    """Take the cells of the free variables from the function."""
    f.cells.update(zip(f.code.co_freevars, f.closure, strict=True))


def load_closure(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a cell."""
    f.stack.append(f.cells[i.value])


def load_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the content of a cell."""
    f.stack.append(f.cells[i.value].load(f.tx, i.value, i.value in f.code.co_freevars))


def store_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Set the content of a cell."""
    f.cells[i.value].store(f.tx, f.stack.pop())


def delete_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Empty a cell."""
    f.cells[i.value].load(f.tx, i.value, i.value in f.code.co_freevars)
    f.cells[i.value].store(f.tx, None)


# ---- attributes and items --------------------------------------------------------------------------------------


def store_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Set an attribute."""
    value, owner = f.popn(2)
    owner.set_attribute(f.tx, i.value, value)


def delete_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete an attribute."""
    f.stack.pop().delete_attribute(f.tx, i.value)


def binary_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an item."""
    owner, key = f.popn(2)
    f.stack.append(owner.get_item(f.tx, key))


def store_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Set an item."""
    value, owner, key = f.popn(3)
    owner.set_item(f.tx, key, value)


def delete_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete an item."""
    owner, key = f.popn(2)
    owner.delete_item(f.tx, key)


# ---- operators -------------------------------------------------------------------------------------------------


def binary_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Apply a binary operator, plain or in place."""
    left, right = f.popn(2)
    in_place = i.arg >= _IN_PLACE
    f.stack.append(f.tx.binary(_OPERATORS[i.arg - _IN_PLACE * in_place], left, right, in_place))


def unary_negative(f: EvaluatedFrame, i: Instruction) -> None:
    """Negate."""
    f.stack.append(f.stack.pop().unary(f.tx, "-"))


def unary_positive(f: EvaluatedFrame, i: Instruction) -> None:
    """Apply unary plus."""
    f.stack.append(f.stack.pop().unary(f.tx, "+"))


def unary_invert(f: EvaluatedFrame, i: Instruction) -> None:
    """Invert."""
    f.stack.append(f.stack.pop().unary(f.tx, "~"))


def unary_not(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is false."""
    f.stack.append(boolean(not f.tx.truth(f.stack.pop())))


def compare(f: EvaluatedFrame, op: str) -> None:
    """Compare the two topmost entries."""
    left, right = f.popn(2)
    f.stack.append(f.tx.compare(op, left, right))


def is_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Compare by identity."""
    left, right = f.popn(2)
    f.stack.append(boolean(f.tx.same(left, right) is not bool(i.arg)))


def contains_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Test membership."""
    item, container = f.popn(2)
    f.stack.append(boolean(container.contains(f.tx, item) is not bool(i.arg)))


# ---- building --------------------------------------------------------------------------------------------------


def build_tuple(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a tuple."""
    f.stack.append(Tuple(f.popn(i.arg)))


def build_list(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a list."""
    f.stack.append(List(f.popn(i.arg)))


def build_set(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a set."""
    f.stack.append(SetValue.of(f.tx, f.popn(i.arg)))


def build_map(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a dict from alternating keys and values."""
    flat = f.popn(2 * i.arg)
    made = Dict()
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        made.set_item(f.tx, key, value)
    f.stack.append(made)


def build_const_key_map(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a dict from values and a tuple of keys."""
    keys = f.tx.unpack(f.stack.pop())
    made = Dict()
    for key, value in zip(keys, f.popn(i.arg), strict=True):
        made.set_item(f.tx, key, value)
    f.stack.append(made)


def build_slice(f: EvaluatedFrame, i: Instruction) -> None:
    """Build a slice."""
    f.stack.append(Slice(f.popn(i.arg)))


def build_string(f: EvaluatedFrame, i: Instruction) -> None:
    """Join strings."""
    f.stack.append(Const("".join(str(part.as_python()) for part in f.popn(i.arg))))


def list_append(f: EvaluatedFrame, i: Instruction) -> None:
    """Append inside a comprehension."""
    item = f.stack.pop()
    f.stack[-i.arg].call_method(f.tx, "append", [item], {})


def list_extend(f: EvaluatedFrame, i: Instruction) -> None:
    """Extend a list that is being built."""
    items = f.stack.pop()
    if not any(f.tx.classes.find(items.type(), name) for name in ("__iter__", "__getitem__")):
        f.tx.raising.error(TypeError, f"Value after * must be an iterable, not {items.type().__name__}")
    f.stack[-i.arg].call_method(f.tx, "extend", [items], {})


def set_add(f: EvaluatedFrame, i: Instruction) -> None:
    """Add inside a comprehension."""
    item = f.stack.pop()
    f.stack[-i.arg].call_method(f.tx, "add", [item], {})


def set_update(f: EvaluatedFrame, i: Instruction) -> None:
    """Update a set that is being built."""
    items = f.stack.pop()
    f.stack[-i.arg].call_method(f.tx, "update", [items], {})


def map_add(f: EvaluatedFrame, i: Instruction) -> None:
    """Store inside a comprehension."""
    key, value = f.popn(2)
    f.stack[-i.arg].set_item(f.tx, key, value)


def dict_update(f: EvaluatedFrame, i: Instruction) -> None:
    """Update a dict that is being built."""
    items = _mapping(f)
    f.stack[-i.arg].call_method(f.tx, "update", [items], {})


def _mapping(f: EvaluatedFrame) -> Value:
    """Pop what stands behind `**`; the TypeError about anything but a mapping is left to CPython."""
    items = f.stack.pop()
    if not issubclass(items.type(), dict) and not f.tx.has_attribute(items, "keys"):
        raise Break("tracer.exception", f"{items.describe()} stands behind **")
    return items


def dict_merge(f: EvaluatedFrame, i: Instruction) -> None:
    """Merge keyword arguments; a repeated one is left to CPython."""
    items = _mapping(f)
    target = cast(Dict, f.stack[-i.arg])
    for hashed, key, value in f.tx.pairs(items):
        if target.find(f.tx, hashed) is not None:
            raise Break("tracer.exception", f"the keyword {hashed!r} is given twice")
        target.store(f.tx, hashed, key, value)


def unpack_sequence(f: EvaluatedFrame, i: Instruction) -> None:
    """Unpack exactly as many elements."""
    value = f.stack.pop()
    found = unpack_exactly(f.tx, value, i.arg)
    f.stack.extend(reversed(found))


def unpack_ex(f: EvaluatedFrame, i: Instruction) -> None:
    """Unpack with a starred target."""
    before, after = i.arg & 255, i.arg >> 8
    value = f.stack.pop()
    if f.tx.is_read_whole(value):
        found = f.tx.unpack(value)
    else:
        iterator = value.iterate(f.tx)
        found = list(itertools.islice(f.tx.elements_left(iterator), before))
        found += f.tx.taken(iterator) if len(found) == before else []
    if len(found) < before + after:
        wanted = f"expected at least {before + after}, got {len(found)}"
        f.tx.raising.error(ValueError, f"not enough values to unpack ({wanted})")
    end = len(found) - after
    f.stack.extend(reversed([*found[:before], List(found[before:end]), *found[end:]]))


def list_to_tuple(f: EvaluatedFrame, i: Instruction) -> None:
    """Turn a list into a tuple."""
    f.stack.append(Tuple(f.tx.unpack(f.stack.pop())))


# ---- jumps and loops -------------------------------------------------------------------------------------------


def jump(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump."""
    f.pc = i.target


def jump_backward(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump back; loops are unrolled, so they spend the budget."""
    f.tx.frames.spend(i.index - i.target)
    f.pc = i.target


def pop_jump_if_false(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is false."""
    if not f.tx.truth(f.stack.pop()):
        _jump(f, i)


def pop_jump_if_true(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is true."""
    if f.tx.truth(f.stack.pop()):
        _jump(f, i)


def pop_jump_if_none(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is None."""
    if is_none(f.stack.pop()):
        _jump(f, i)


def pop_jump_if_not_none(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top isn't None."""
    if not is_none(f.stack.pop()):
        _jump(f, i)


def _jump(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump; going back spends the budget."""
    if i.target < i.index:
        f.tx.frames.spend(i.index - i.target)
    f.pc = i.target


def jump_if_false_or_pop(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is false, else drop it."""
    if f.tx.truth(f.stack[-1]):
        f.stack.pop()
    else:
        f.pc = i.target


def jump_if_true_or_pop(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is true, else drop it."""
    if f.tx.truth(f.stack[-1]):
        f.pc = i.target
    else:
        f.stack.pop()


def get_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Make an iterator."""
    f.stack.append(f.stack.pop().iterate(f.tx))


def for_iter(f: EvaluatedFrame, i: Instruction, skipped: int) -> None:
    """Push the next element, or drop the iterator and leave the loop."""
    found = f.tx.advance(f.stack[-1])
    if found is not None:
        f.stack.append(found)
        return
    f.stack.pop()
    f.pc = i.target + skipped


def get_len(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the length of the top."""
    f.stack.append(Const(f.stack[-1].length(f.tx)))


# ---- calls and functions ---------------------------------------------------------------------------------------


def call(f: EvaluatedFrame, function: Value, args: list[Value], names: tuple[str, ...]) -> None:
    """Call; the last arguments are named."""
    keywords = {}
    if names:
        keywords = dict(zip(names, args[-len(names) :], strict=True))
        args = args[: -len(names)]
    f.stack.append(f.tx.call(function, args, keywords))


def call_function_ex(f: EvaluatedFrame, i: Instruction) -> None:
    """Call with an iterable of arguments and a mapping of keywords."""
    keywords: dict[str, Value] = {}
    if i.arg & 1:
        for hashed, _, value in f.tx.pairs(_mapping(f)):
            if not isinstance(hashed, str):
                raise Break("tracer.exception", "keywords must be strings")
            keywords[hashed] = value
    given = f.stack.pop()
    if not any(f.tx.classes.find(given.type(), name) for name in ("__iter__", "__getitem__")):
        raise Break("tracer.exception", f"{given.describe()} stands behind *")
    args = f.tx.taken(given)
    one, other = f.popn(2)
    f.stack.append(f.tx.call(one if other is NULL else other, args, keywords))


def make_function(f: EvaluatedFrame, code: Any) -> Any:
    """Make a function without defaults."""
    return MadeFunction(code, f.globals)


def return_value(f: EvaluatedFrame, i: Instruction) -> Signal:
    """Return the top."""
    return f.stack.pop()


def return_generator(f: EvaluatedFrame, i: Instruction) -> None:
    """The generator was made by the call; its first `send` puts the value for the next POP_TOP on the stack."""


def yield_value(f: EvaluatedFrame, i: Instruction) -> Signal:
    """Give the top to whoever advances the generator."""
    return Yielded(f.stack.pop())


def get_yield_from_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Make an iterator for `yield from`."""
    if not isinstance(f.stack[-1], Generator):
        f.stack.append(f.stack.pop().iterate(f.tx))


def send(f: EvaluatedFrame, i: Instruction, keep_receiver: bool) -> None:
    """Advance the inner iterator of `yield from`."""
    value = f.stack.pop()
    receiver = f.stack[-1]
    try:
        if is_none(value):
            found = f.tx.next_or_stop(receiver) if not isinstance(receiver, Generator) else receiver.send(f.tx, value)
        else:
            found = f.tx.call(receiver.get_attribute(f.tx, "send"), [value], {})
    except Raised as raised:
        if not raised.is_a(StopIteration):
            raise
        result = raised.value.get_attribute(f.tx, "value")
        if not keep_receiver:
            f.stack.pop()
        f.stack.append(result)
        f.pc = i.target
        return
    f.stack.append(found)


# ---- with, exceptions ------------------------------------------------------------------------------------------


def before_with(f: EvaluatedFrame, i: Instruction) -> None:
    """Enter a context manager."""
    manager = f.stack.pop()
    enter = special_method(f.tx, manager, "__enter__")
    f.stack.append(special_method(f.tx, manager, "__exit__"))
    f.stack.append(f.tx.call(enter, [], {}))


def with_except_start(f: EvaluatedFrame, i: Instruction) -> None:
    """Call `__exit__` with the exception."""
    exception = f.stack[-1]
    leave = f.stack[-4]
    f.stack.append(f.tx.call(leave, [f.tx.live.class_value(exception.type()), exception, Traceback()], {}))


def push_exc_info(f: EvaluatedFrame, i: Instruction) -> None:
    """Begin handling the exception on top."""
    exception = f.stack.pop()
    f.stack.append(f.tx.raising.handling or NONE)
    f.stack.append(exception)
    f.tx.raising.handling = exception


def pop_except(f: EvaluatedFrame, i: Instruction) -> None:
    """End handling."""
    before = f.stack.pop()
    f.tx.raising.handling = None if is_none(before) else before


def check_exc_match(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the exception is of a class."""
    wanted = f.stack.pop()
    f.stack.append(boolean(matches_exception(f.tx.classes, f.stack[-1], wanted)))


def reraise(f: EvaluatedFrame, i: Instruction) -> None:
    """Raise the exception on top again."""
    raise Raised(f.stack.pop())


def raise_varargs(f: EvaluatedFrame, i: Instruction) -> None:
    """Model the raise statement."""
    raise_statement(f.tx, f.popn(i.arg))


def load_assertion_error(f: EvaluatedFrame, i: Instruction) -> None:
    """Push AssertionError."""
    f.stack.append(f.tx.live.class_value(AssertionError))


# ---- match -----------------------------------------------------------------------------------------------------


def match_mapping(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is a mapping."""
    f.stack.append(boolean(bool(f.stack[-1].type().__flags__ & (1 << 6))))


def match_sequence(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is a sequence."""
    f.stack.append(boolean(bool(f.stack[-1].type().__flags__ & (1 << 5))))


def match_keys(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the values of keys, or None."""
    subject, keys = f.stack[-2], f.stack[-1]
    found = []
    wanted = f.tx.unpack(keys)
    if len({key.hash_key(f.tx) for key in wanted}) != len(wanted):
        raise Break("tracer.exception", "a mapping pattern repeats a key")
    for key in wanted:
        if not subject.contains(f.tx, key):
            f.stack.append(NONE)
            return
        found.append(subject.get_item(f.tx, key))
    f.stack.append(Tuple(found))


def match_class(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the attributes of a class pattern, or None."""
    subject, cls, names = f.popn(3)
    f.stack.append(patterns.match_class(f.tx, subject, cls, i.arg, f.tx.unpack(names)))


# ---- imports ---------------------------------------------------------------------------------------------------


def import_name(f: EvaluatedFrame, i: Instruction) -> None:
    """Import a module that is loaded already."""
    level, names = f.popn(2)
    f.stack.append(namespaces.import_module(f.tx, f.globals, i.value, level.as_python(), names.as_python()))


def import_from(f: EvaluatedFrame, i: Instruction) -> None:
    """Read a name of a module."""
    f.stack.append(namespaces.import_from(f.tx, f.stack[-1], i.value))


COMMON: dict[str, Opcode] = {
    "BEFORE_WITH": before_with,
    "BINARY_OP": binary_op,
    "BINARY_SUBSCR": binary_subscr,
    "BUILD_CONST_KEY_MAP": build_const_key_map,
    "BUILD_LIST": build_list,
    "BUILD_MAP": build_map,
    "BUILD_SET": build_set,
    "BUILD_SLICE": build_slice,
    "BUILD_STRING": build_string,
    "BUILD_TUPLE": build_tuple,
    "CALL_FUNCTION_EX": call_function_ex,
    "CHECK_EXC_MATCH": check_exc_match,
    "CONTAINS_OP": contains_op,
    "COPY": copy,
    "COPY_FREE_VARS": copy_free_vars,
    "DELETE_ATTR": delete_attr,
    "DELETE_DEREF": delete_deref,
    "DELETE_FAST": delete_fast,
    "DELETE_GLOBAL": delete_global,
    "DELETE_SUBSCR": delete_subscr,
    "DICT_MERGE": dict_merge,
    "DICT_UPDATE": dict_update,
    "GET_ITER": get_iter,
    "GET_LEN": get_len,
    "GET_YIELD_FROM_ITER": get_yield_from_iter,
    "IMPORT_FROM": import_from,
    "IMPORT_NAME": import_name,
    "IS_OP": is_op,
    "JUMP_BACKWARD": jump_backward,
    "JUMP_BACKWARD_NO_INTERRUPT": jump_backward,
    "JUMP_FORWARD": jump,
    "LIST_APPEND": list_append,
    "LIST_EXTEND": list_extend,
    "LOAD_ASSERTION_ERROR": load_assertion_error,
    "LOAD_CONST": load_const,
    "LOAD_DEREF": load_deref,
    "LOAD_FAST": load_fast,
    "LOAD_GLOBAL": load_global,
    "MAKE_CELL": make_cell,
    "MAP_ADD": map_add,
    "MATCH_CLASS": match_class,
    "MATCH_KEYS": match_keys,
    "MATCH_MAPPING": match_mapping,
    "MATCH_SEQUENCE": match_sequence,
    "NOP": nothing,
    "POP_EXCEPT": pop_except,
    "POP_TOP": pop_top,
    "PUSH_EXC_INFO": push_exc_info,
    "PUSH_NULL": push_null,
    "RAISE_VARARGS": raise_varargs,
    "RERAISE": reraise,
    "RESUME": nothing,
    "RETURN_GENERATOR": return_generator,
    "RETURN_VALUE": return_value,
    "SET_ADD": set_add,
    "SET_UPDATE": set_update,
    "STORE_ATTR": store_attr,
    "STORE_DEREF": store_deref,
    "STORE_FAST": store_fast,
    "STORE_GLOBAL": store_global,
    "STORE_SUBSCR": store_subscr,
    "SWAP": swap,
    "UNARY_INVERT": unary_invert,
    "UNARY_NEGATIVE": unary_negative,
    "UNARY_NOT": unary_not,
    "UNPACK_EX": unpack_ex,
    "UNPACK_SEQUENCE": unpack_sequence,
    "WITH_EXCEPT_START": with_except_start,
    "YIELD_VALUE": yield_value,
}
