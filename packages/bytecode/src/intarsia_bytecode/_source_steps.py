"""What each instruction does to the stack of expressions, in the terms of CPython 3.11, 3.12 and 3.13."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from intarsia_bytecode._source_writer import NULL, Expression, UnwrittenError, Writer, identifier
from intarsia_bytecode.decode import Instruction, decode

__all__ = ["STEPS"]


def _nothing(w: Writer, i: Instruction) -> None:
    pass


def _load_local(w: Writer, i: Instruction) -> None:
    w.stack.append(Expression(identifier(i.value), reads=frozenset({i.value}), is_value=True))


def _store_local(w: Writer, i: Instruction) -> None:
    w.assign(identifier(i.value), w.stack.pop(), i.value)


def _delete_local(w: Writer, i: Instruction) -> None:
    if not any(i.value in entry.reads for entry in w.stack):
        w.say(f"del {identifier(i.value)}")


def _pairs(first: str, second: str) -> Callable[[Writer, Instruction], None]:
    """3.13's instructions on two locals."""

    def run(w: Writer, i: Instruction) -> None:
        for op, name in zip((first, second), i.value, strict=True):
            STEPS[op](w, replace(i, op=op, value=name))

    return run


def _load_free(w: Writer, i: Instruction) -> None:
    w.push(identifier(i.value))  # another function may write it


def _store_free(w: Writer, i: Instruction) -> None:
    _declare(w, i.value)
    w.assign(identifier(i.value), w.stack.pop())


def _delete_free(w: Writer, i: Instruction) -> None:
    _declare(w, i.value)
    w.say(f"del {identifier(i.value)}")


def _declare(w: Writer, name: str) -> None:
    if name in w.code.co_freevars and name not in w.declared["nonlocal"]:
        w.declared["nonlocal"].append(name)


def _load_global(w: Writer, i: Instruction) -> None:
    if i.value in w.code.co_varnames:
        raise UnwrittenError
    if i.arg & 1:
        w.stack.append(NULL)
    w.push(identifier(i.value))


def _store_global(w: Writer, i: Instruction) -> None:
    if i.value not in w.declared["global"]:
        w.declared["global"].append(identifier(i.value))
    w.assign(i.value, w.stack.pop())


def _constant(w: Writer, i: Instruction) -> None:
    w.stack.append(w.constant(i.value))


def _null(w: Writer, i: Instruction) -> None:
    w.stack.append(NULL)


def _attribute(w: Writer, i: Instruction) -> None:
    (owner,) = w.pop(1)
    if i.op == "LOAD_METHOD" or (_VERSION >= (3, 12) and i.arg & 1):  # a call of it follows
        w.stack.append(NULL)
    w.push(f"{_owner(owner)}.{identifier(i.value)}", owner)


def _owner(owner: Expression) -> str:
    """An expression before a dot: a number needs parentheses."""
    return f"({owner.text})" if owner.text[:1].isdigit() else str(owner)


def _store_attribute(w: Writer, i: Instruction) -> None:
    value, owner = w.pop(2)
    w.say(f"{_owner(owner)}.{identifier(i.value)} = {value.text}")


def _delete_attribute(w: Writer, i: Instruction) -> None:
    (owner,) = w.pop(1)
    w.say(f"del {_owner(owner)}.{identifier(i.value)}")


def _item(w: Writer, i: Instruction) -> None:
    owner, key = w.pop(2)
    w.push(f"{owner}[{key.text}]", owner, key)


def _slice(w: Writer, i: Instruction) -> None:
    owner, start, stop = w.pop(3)
    w.push(f"{owner}[{start}:{stop}]", owner, start, stop)


def _store_slice(w: Writer, i: Instruction) -> None:
    value, owner, start, stop = w.pop(4)
    w.say(f"{owner}[{start}:{stop}] = {value.text}")


def _store_item(w: Writer, i: Instruction) -> None:
    value, owner, key = w.pop(3)  # in this order Python evaluates them too
    w.say(f"{owner}[{key.text}] = {value.text}")


def _delete_item(w: Writer, i: Instruction) -> None:
    owner, key = w.pop(2)
    w.say(f"del {owner}[{key.text}]")


def _binary(w: Writer, i: Instruction) -> None:
    left, right = w.pop(2)
    operator = dis._nb_ops[i.arg][1]  # type: ignore[attr-defined]
    if operator.endswith("="):  # in place
        w.keep_all()
        left = w.kept(left)
        w.say(f"{left.text} {operator} {right.text}")
        w.stack.append(left)
        return
    w.push(f"{left} {operator} {right}", left, right, is_atom=False)


def _unary(w: Writer, i: Instruction) -> None:
    (operand,) = w.pop(1)
    w.push(f"{_UNARY[i.op]}{operand}", operand, is_atom=False)


def _compare(w: Writer, i: Instruction) -> None:
    left, right = w.pop(2)
    shift = 0 if _VERSION < (3, 12) else 4 if _VERSION < (3, 13) else 5
    w.push(f"{left} {dis.cmp_op[i.arg >> shift]} {right}", left, right, is_atom=False)


def _is_or_in(w: Writer, i: Instruction) -> None:
    left, right = w.pop(2)
    word = {"IS_OP": ("is", "is not"), "CONTAINS_OP": ("in", "not in")}[i.op][i.arg]
    w.push(f"{left} {word} {right}", left, right, is_atom=False)


def _build(form: str) -> Callable[[Writer, Instruction], None]:
    def run(w: Writer, i: Instruction) -> None:
        items = w.pop(i.arg)
        comma = "," if form == "()" and i.arg == 1 else ""
        if form == "{}" and not items:
            w.push(_EMPTY_SET)
            return
        w.push(f"{form[0]}{', '.join(item.text for item in items)}{comma}{form[1]}", *items)

    return run


def _build_map(w: Writer, i: Instruction) -> None:
    items = w.pop(2 * i.arg)
    w.push("{" + ", ".join(f"{k.text}: {v.text}" for k, v in zip(items[::2], items[1::2], strict=True)) + "}", *items)


def _build_keyed_map(w: Writer, i: Instruction) -> None:
    w.stack.pop()
    keys = _constant_before(w, i)
    values = w.pop(i.arg)
    pairs = [f"{w.constant(key).text}: {value.text}" for key, value in zip(keys, values, strict=True)]
    w.push("{" + ", ".join(pairs) + "}", *values)


def _constant_before(w: Writer, i: Instruction) -> Any:
    before = decode(w.code).instructions[i.index - 1]
    if before.op != "LOAD_CONST":
        raise UnwrittenError
    return before.value


def _build_slice(w: Writer, i: Instruction) -> None:
    parts = w.pop(i.arg)
    w.push(f"slice({', '.join(part.text for part in parts)})", *parts)


def _call(w: Writer, i: Instruction) -> None:
    keywords = i.keywords
    if i.op == "CALL_KW":
        w.stack.pop()
        keywords = _constant_before(w, i)
    arguments = w.pop(i.arg)
    one, other = w.pop(2)
    function = other if one is NULL else one
    if one is not NULL and other is not NULL:
        arguments = [other, *arguments]
    n_plain = len(arguments) - len(keywords)
    texts = [argument.text for argument in arguments[:n_plain]]
    texts += [f"{identifier(name)}={value.text}" for name, value in zip(keywords, arguments[n_plain:], strict=True)]
    w.call(function, texts, *arguments)


def _call_unpacked(w: Writer, i: Instruction) -> None:
    keywords = w.pop(1) if i.arg & 1 else []
    (positional,) = w.pop(1)
    one, other = w.pop(2)
    function = other if one is NULL else one
    if one is not NULL and other is not NULL:
        raise UnwrittenError
    texts = [f"*{positional}", *(f"**{k}" for k in keywords)]
    w.call(function, texts, positional, *keywords)


def _intrinsic(w: Writer, i: Instruction) -> None:
    if i.arg != 6:  # a list becomes a tuple
        raise UnwrittenError
    _to_tuple(w, i)


def _to_tuple(w: Writer, i: Instruction) -> None:
    (items,) = w.pop(1)
    w.push(f"(*{items},)", items)


def _extend(method: str, star: str) -> Callable[[Writer, Instruction], None]:
    def run(w: Writer, i: Instruction) -> None:
        (more,) = w.pop(1)
        if i.arg == 1 and w.stack[-1].text in ("[]", "{}", _EMPTY_SET):
            empty = w.stack.pop().text
            w.push(f"{empty[0]}{star}{more}{empty[-1]}", more)
        elif method:
            w.keep_all()
            w.say(f"{w.stack[-i.arg]}.{method}({more.text})")
        else:
            raise UnwrittenError

    return run


def _make_function(w: Writer, i: Instruction) -> None:
    if i.arg:
        raise UnwrittenError  # of a closure or with defaults
    # a function of the code stands for itself: its name is in `names`


def _pop(w: Writer, i: Instruction) -> None:
    (entry,) = w.pop(1)
    if not entry.is_value and entry is not NULL:
        w.say(entry.text)


def _copy(w: Writer, i: Instruction) -> None:
    w.keep_all()
    w.stack.append(w.stack[-i.arg])


def _swap(w: Writer, i: Instruction) -> None:
    w.keep_all()
    w.stack[-1], w.stack[-i.arg] = w.stack[-i.arg], w.stack[-1]


_EMPTY_SET = "{*()}"
_VERSION = sys.version_info[:2]
_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~", "UNARY_POSITIVE": "+"}
STEPS: Mapping[str, Callable[[Writer, Instruction], None]] = MappingProxyType(
    {
        "BINARY_OP": _binary,
        "BINARY_SLICE": _slice,
        "BINARY_SUBSCR": _item,
        "BUILD_CONST_KEY_MAP": _build_keyed_map,
        "BUILD_LIST": _build("[]"),
        "BUILD_MAP": _build_map,
        "BUILD_SET": _build("{}"),
        "BUILD_SLICE": _build_slice,
        "BUILD_TUPLE": _build("()"),
        "CALL": _call,
        "CALL_FUNCTION_EX": _call_unpacked,
        "CALL_INTRINSIC_1": _intrinsic,
        "CALL_KW": _call,
        "COMPARE_OP": _compare,
        "CONTAINS_OP": _is_or_in,
        "COPY": _copy,
        "COPY_FREE_VARS": _nothing,
        "DELETE_ATTR": _delete_attribute,
        "DELETE_DEREF": _delete_free,
        "DELETE_FAST": _delete_local,
        "DELETE_SUBSCR": _delete_item,
        "DICT_MERGE": _extend("", "**"),
        "DICT_UPDATE": _extend("update", "**"),
        "IS_OP": _is_or_in,
        "LIST_APPEND": _extend("append", ""),
        "LIST_EXTEND": _extend("extend", "*"),
        "LIST_TO_TUPLE": _to_tuple,
        "LOAD_ATTR": _attribute,
        "LOAD_CONST": _constant,
        "LOAD_DEREF": _load_free,
        "LOAD_FAST": _load_local,
        "LOAD_FAST_CHECK": _load_local,
        "LOAD_FAST_LOAD_FAST": _pairs("LOAD_FAST", "LOAD_FAST"),
        "LOAD_GLOBAL": _load_global,
        "LOAD_METHOD": _attribute,
        "MAKE_CELL": _nothing,
        "MAKE_FUNCTION": _make_function,
        "NOP": _nothing,
        "POP_TOP": _pop,
        "PUSH_NULL": _null,
        "RESUME": _nothing,
        "SET_UPDATE": _extend("update", "*"),
        "STORE_ATTR": _store_attribute,
        "STORE_DEREF": _store_free,
        "STORE_FAST": _store_local,
        "STORE_FAST_LOAD_FAST": _pairs("STORE_FAST", "LOAD_FAST"),
        "STORE_FAST_STORE_FAST": _pairs("STORE_FAST", "STORE_FAST"),
        "STORE_GLOBAL": _store_global,
        "STORE_SLICE": _store_slice,
        "STORE_SUBSCR": _store_item,
        "SWAP": _swap,
        **dict.fromkeys(_UNARY, _unary),
    }
)
