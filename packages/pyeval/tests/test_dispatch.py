"""Operators and methods of built-in containers and their subclasses: who is asked, in which order, and what comes out.

Each program runs in CPython and by its capture: the result with its exact class, whether it is the receiver, the
methods that were called, and what the operands hold afterwards.
"""

from __future__ import annotations

import collections

import pytest
from differential import differing

#: Kind -> (one content, another, an element or key of the first).
KINDS = {
    "dict": ("{'p': 1, 'q': 2}", "{'q': 3, 'r': 4}", "'p'"),
    "list": ("[3, 1, 2]", "[3, 5]", "1"),
    "set": ("{1, 2, 3}", "{3, 5}", "1"),
    "frozenset": ("{1, 2, 3}", "{3, 5}", "1"),
    "tuple": ("(3, 1, 2)", "(3, 5)", "1"),
    "deque": ("[3, 1, 2]", "[3, 5]", "1"),
    "OrderedDict": ("{'p': 1, 'q': 2}", "{'q': 3, 'r': 4}", "'p'"),
    "Counter": ("{'p': 1, 'q': 2}", "{'q': 3, 'r': 4}", "'p'"),
    "defaultdict": ("int, {'p': 1, 'q': 2}", "int, {'q': 3, 'r': 4}", "'p'"),
}
_METHOD_NAMES = """
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __len__ __iter__ __contains__ __getitem__ __setitem__ __delitem__ __add__
    __radd__ __iadd__ __mul__ __rmul__ __imul__ __or__ __ror__ __ior__ __and__ __rand__ __iand__ __sub__ __rsub__
    __isub__ __xor__ __rxor__ __ixor__ __reversed__ append appendleft extend extendleft insert pop popleft popitem
    remove discard clear copy update setdefault get keys values items add union intersection difference index count
    rotate sort reverse elements most_common subtract move_to_end
"""
METHODS = _METHOD_NAMES.split()
COMMON = "a == b; a != b; a < b; a >= b; X in a; a == a; [a] == [b]; a + b; a * 2; 2 * a; a | b; a & b; a - b; a ^ b"
OTHERS = "a == [3, 1, 2]; [3, 1, 2] == a; a == {1, 2, 3}; a == {'p': 1, 'q': 2}; (3, 1, 2) == a; a == deque([3, 1, 2])"
TAKEN = "list(a); tuple(a); sorted(a); set(a); dict(a); deque(a); {**a}; [*a]; copy.copy(a); a.copy(); type(a)(a)"
ASKED = "len(a); bool(a); hash(a); a[X]; a[0]; a[:2]; a['zz']; iter(a).__class__; list(reversed(a)); max(a); sum(a)"
NAMED = "a.__eq__(b); a.__add__(b); a.__or__(b); a.__len__(); type(a).__eq__(a, b); [].__add__(a); {}.__or__(a)"
MIXED = "a + [1]; [1] + a; (1,) + a; a | {9}; {9} | a; {1, 9} - a; a | {'z': 1}; {'z': 1} | a; a.keys() == b.keys()"
CALLED = "a.pop(); a.popitem(); a.pop(X); a.get('zz', 7); a.setdefault('n', 5); a.index(X); a.count(X); a.union(b)"
EXPRESSIONS = [e for text in (COMMON, OTHERS, TAKEN, ASKED, NAMED, MIXED, CALLED) for e in text.split("; ")]
STATEMENTS = """
    a += b / a *= 2 / a |= b / a &= b / a -= b / a ^= b / a += [7] / a += (x for x in b) / a |= {7} / a |= {'y': 7}
    a[X] = 9 / del a[0] / a[1:2] = b / a[:] = a / a.append(9) / a.extend(b) / a.insert(0, 9) / a.remove(X) / a.clear()
    a.add(9) / a.update(b) / a.update(z=1) / a.sort() / a.appendleft(9) / a.extendleft(b) / a.rotate(1)
    a.move_to_end(X) / x = [1]; x += a / x = {1}; x |= a / x = {}; x.update(a) / x = deque(); x.extend(a) / x, *y = a
    x = y = a; y += b / for v in a: a.add(v + 10) / for v in a: a['n'] = 1 / a.__init__(b) / a['new'] += 1
    a.difference_update(b) / a.attr = 5
"""
BODIES = [f"r = {e}" for e in EXPRESSIONS]
BODIES += [part.strip() for line in STATEMENTS.strip().splitlines() for part in line.split(" / ")]
PRELUDE = """
import copy
from collections import Counter, OrderedDict, defaultdict, deque

log = []

def note(*what):
    log.append(what)
"""
PROGRAM = """
def f(a0, b0):
    {operands}
    r = x = y = None
    old = a
    {body}
    return r, a, b, a is old, r is a, r is b, x, y

def make():
    return {a}, {b}
"""


def _classes(kind: str) -> str:
    """Return a subclass that adds nothing, one that overrides everything, and one with reflected operators."""
    real = getattr(collections, kind, None) or __builtins__[kind]  # type: ignore[index]
    own = [name for name in METHODS if getattr(real, name, None) is not getattr(object, name, None)]
    loud = [
        f"    def {name}(self, *args):\n        note({name!r}, *[type(a).__name__ for a in args])\n"
        f"        return super().{name}(*args)\n"
        for name in own
        if hasattr(real, name)
    ]
    answers = "NotImplemented if len(log) % 2 else (type(self).__name__, len(self))"
    asked = [f"__r{n}__" for n in ("add", "mul", "or", "and", "sub", "xor")] + ["__eq__", "__ne__", "__lt__", "__ge__"]
    reflected = [
        f"    def {name}(self, other):\n        note({name!r}, type(other).__name__)\n        return {answers}\n"
        for name in asked
    ]
    hashed = f"    __hash__ = {kind}.__hash__\n"
    return (
        f"class Plain({kind}):\n    pass\n\nclass Loud({kind}):\n{hashed}{''.join(loud)}\n"
        f"class Reflected({kind}):\n{''.join(reflected)}"
    )


@pytest.mark.parametrize("operands", ["Plain Plain", "Loud Loud", "Kind Reflected", "Plain Reflected", "Kind Plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_is_asked(kind, operands):
    content, other, key = KINDS[kind]
    prelude = PRELUDE + _classes(kind)
    left, right = (name.replace("Kind", kind) for name in operands.split())
    a, b = f"{left}({content})", f"{right}({other})"
    at = list(KINDS).index(kind) + len(operands)
    for number, body in list(enumerate(BODIES))[at % 2 :: 2]:
        made = (number + at) % 3 != 0
        program = PROGRAM.format(operands=f"a, b = {a}, {b}" if made else "a, b = a0, b0", body=body, a=a, b=b)
        found = differing(prelude + program.replace("X", key))
        assert not found, (body, made, found)
