"""One short text for a loops program, equal for equal programs in any process: what ties a plan to its graph."""

from __future__ import annotations

import hashlib
from typing import Any

from intarsia_loops.program import Extern, Nest, Program, Val
from intarsia_loops.rewrites import postorder

__all__ = ["fingerprint"]


def fingerprint(program: Program) -> str:
    """Return a digest of buffers, inputs, items and outputs; origins, facts and placement don't count."""
    whole = hashlib.blake2b(digest_size=16)
    known: dict[Val, str] = {}

    def add(*parts: Any) -> None:
        whole.update("\x1f".join(map(repr, parts)).encode() + b"\x1e")

    add("inputs", program.inputs, tuple(sorted(program.constants)))
    for name, buffer in program.buffers.items():
        add(name, buffer.shape, buffer.strides, buffer.dtype, buffer.device)
    for item in program.items:
        if isinstance(item, Nest):
            add(item.out, _axes(item.axes), _axes(item.red), item.kind, item.dtype, _value(item.body, known))
        elif isinstance(item, Extern):
            add(item.outs, str(item.target), item.args, item.kwargs)
        else:
            add(item)
    add("outputs", program.outputs)
    return whole.hexdigest()


def _axes(axes: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((a.key, repr(a.extent)) for a in axes)


def _value(body: Val, known: dict[Val, str]) -> str:
    """Digest of a scalar DAG; shared parts are digested once."""
    for v in postorder(body):
        if v not in known:
            text = repr((v.op, tuple(_argument(a, known) for a in v.args), v.dtype))
            known[v] = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return known[body]


def _argument(argument: Any, known: dict[Val, str]) -> Any:
    if isinstance(argument, Val):
        return ("val", known[argument])
    if isinstance(argument, tuple):
        return tuple(_argument(a, known) for a in argument)
    return argument
