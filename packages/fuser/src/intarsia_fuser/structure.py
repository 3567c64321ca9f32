"""Names for the items of a program that its sizes don't change: what carries a plan over to other sizes.

The key of a nest is a digest of what it computes and from what: its kind, type and numbers of axes, and its body with
every number, size and position left out and every load standing for the key of what it reads. Equal layers differ in
what they read; where even that is equal, the order of the program tells them apart (`#1`, `#2`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Extern, Nest, Program, TensorRef, Val
from intarsia_loops.rewrites import postorder

__all__ = ["structure"]


def structure(program: Program) -> dict[str, str]:
    """Return name -> key, for buffers, and for extern calls by `"@k"` where k is their place in the program.

    Example:
        >>> from intarsia_loops import from_fx, loops
        >>> text = '''// dialect: loops 2
        ... graph(%x: f32[4]) {
        ...   %y: f32[4] = map[i0: 4] mul(load(%x, i0), f32(0.25))
        ...   return (%y,)
        ... }
        ... '''
        >>> other = text.replace("4]", "8]").replace("0.25", "0.125")
        >>> small, large = (from_fx(loops.parse_ir(t)) for t in (text, other))
        >>> structure(small) == structure(large)
        True
    """
    keys: dict[str, str] = {name: f"in{k}" for k, name in enumerate(program.inputs)}
    seen: Counter[str] = Counter()
    for name in program.constants:
        keys.setdefault(name, f"const{len(keys)}")
    for rank, item in enumerate(program.items):
        key = _digest(_form(item, keys))
        seen[key] += 1
        key = key if seen[key] == 1 else f"{key}#{seen[key] - 1}"
        if isinstance(item, Nest):
            keys[item.out] = key
        elif isinstance(item, Extern):
            keys[f"@{rank}"] = key
            keys.update({out: f"{key}.{k}" for k, out in enumerate(item.outs) if out})
    return keys


def _form(item: Any, keys: Mapping[str, str]) -> Any:
    if isinstance(item, Nest):
        return item.kind, item.dtype, len(item.axes), len(item.red), _body(item.body, keys)
    if isinstance(item, Extern):
        return str(item.target), len(item.outs), _argument((item.args, item.kwargs), keys)
    return type(item).__name__


def _body(body: Val, keys: Mapping[str, str]) -> str:
    """Digest of a scalar DAG; shared parts are digested once."""
    known: dict[Val, str] = {}
    for v in postorder(body):
        if v.op in ("load", "gather"):
            entries = tuple(known[i] if isinstance(i, Val) else _axes(i) for i in v.args[1])
            form: Any = (v.op, keys.get(v.args[0], ""), entries)
        elif v.op == "index":
            form = ("index", _axes(v.args[0]))
        else:
            form = (v.op, v.dtype, tuple(known[a] for a in v.args if isinstance(a, Val)))
        known[v] = _digest(form)
    return known[body]


def _axes(position: IndexExpr) -> tuple[str, ...]:
    return tuple(sorted(a.key for a in position.axes()))


def _argument(value: Any, keys: Mapping[str, str]) -> Any:
    """What an argument of an extern call is, without sizes."""
    if isinstance(value, TensorRef):
        return keys.get(value.buffer, ""), len(value.shape)
    if isinstance(value, (tuple, list)):
        return tuple(_argument(v, keys) for v in value)
    return type(value).__name__


def _digest(form: Any) -> str:
    return hashlib.blake2b(repr(form).encode(), digest_size=8).hexdigest()
