"""All rules together: importing this module fills the tables of `do` and `codegen`."""

from __future__ import annotations

from typing import Any

from intarsia_ir.errors import InternalError
from intarsia_pyeval.callables import (
    atoms as atom_calls,
)
from intarsia_pyeval.callables import (
    attributes,
    class_checks,
    class_makers,
    copying,
    drawing,
    groups,
    in_python,
    iterating,
    making,
    operator_module,
    patterns,
    polyfills,
    pure,
    refused,
)
from intarsia_pyeval.kinds import (
    atoms,
    builtin_methods,
    cells,
    classes,
    comparing,
    context_variables,
    deques,
    dict_views,
    dicts,
    frames,
    functions,
    generators,
    instance_dicts,
    instances,
    iterators,
    lists,
    locks,
    made_classes,
    made_functions,
    made_proxies,
    methods,
    modules,
    namespaces,
    numbers,
    partials,
    positions,
    readings,
    references,
    sequences,
    sets,
    slices,
    supers,
    texts,
    tuples,
    warned,
)
from intarsia_pyeval.tracer import BuiltinCall, Callables

__all__ = ["CALLABLES", "KINDS"]

#: Where the rules are, a file for each kind of value.
KINDS = (
    atoms,
    builtin_methods,
    cells,
    classes,
    comparing,
    context_variables,
    deques,
    dict_views,
    dicts,
    frames,
    functions,
    generators,
    instance_dicts,
    instances,
    iterators,
    lists,
    locks,
    made_classes,
    made_functions,
    made_proxies,
    methods,
    modules,
    namespaces,
    numbers,
    partials,
    positions,
    readings,
    references,
    sequences,
    sets,
    slices,
    supers,
    texts,
    tuples,
    warned,
)
_TABLES = (
    attributes.CALLS,
    class_checks.CALLS,
    class_makers.CALLS,
    iterating.CALLS,
    making.CALLS,
    atom_calls.CALLS,
    operator_module.CALLS,
    context_variables.CALLS,
    copying.CALLS,
    drawing.CALLS,
    groups.CALLS,
    in_python.CALLS,
    patterns.CALLS,
    locks.CALLS,
    readings.CALLS,
    made_proxies.CALLS,
    frames.CALLS,
    refused.CALLS,
    warned.CALLS,
)


def _joined() -> dict[Any, BuiltinCall]:
    """Return the rows of all tables; no callable is in two."""
    rows: dict[Any, BuiltinCall] = {}
    for table in _TABLES:
        if not rows.keys().isdisjoint(table):
            raise InternalError("two tables say how the same callable is called", code="tracer.table")
        rows |= table
    return rows


#: How callables that CPython has in C are called.
CALLABLES = Callables(_joined(), pure.PURE, polyfills.STAND_INS)
