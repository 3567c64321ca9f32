"""The rules of the loops dialect. This list is the specification; every rule has a test that carries its number.

L1: every buffer has an identifier for a name and is defined once: as an input, a constant, or the result of one item.
L2: every buffer that an item reads is defined before it.
L3: a nest has one axis per dimension of its buffer, of that extent; the axes' names are distinct and their extents
    are sizes; a map reduces nothing, a reduction at least one axis, a scan exactly one, which is also in its axes.
L4: the nest's kind is in the table and takes the body's element type; the result type is the buffer's.
L5: every value is a row of the scalar op table with its operands, and has the element type that the row gives.
L6: a load has one index per dimension and the buffer's element type; only a gather has Vals (i64) among its indices.
L7: indices use only the nest's own axes and lie provably inside their dimension, for all values of the size symbols.
L8: integers are divided by constants other than 0 and -1 only.
L9: an extern call is of an operator overload that neither writes its operands nor returns views; it has one name per
    result; its operands are views that stay inside their buffers.
L10: outputs are views of defined buffers that stay inside them, size expressions, or Python constants.
L11: a buffer has as many strides as sizes, none depends on a loop variable; size symbols have the ranges of the
    facts; elements of a written buffer don't overlap.
L12: every item has origins (asked of programs from our own front ends: `origins=True`).
L13: items are nests and extern calls, and nothing is placed in memory yet.
L14: the graph is what `to_fx` makes: every node is an input, a constant, an item, a pick of its results, or a view.
L15: all buffers that nests read and write are on one device; extern calls may touch others.
L16: a scatter's body, and no other value, is `scatter(initial, value, place...)`: the initial value is over the axes,
    the value and the places over the points; there is one i64 place per dimension of the buffer, and all types fit.
L17: a size symbol that no input shows is made by a call before the items that need it.
"""

from __future__ import annotations

import torch.fx as fx

from intarsia_ir.dialects import dialect_of, step_between
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_loops._rules import Findings, check_program
from intarsia_loops.graph import from_fx
from intarsia_loops.program import Extern, Nest, Program

__all__ = ["verify"]


def verify(gm: fx.GraphModule | Program, *, origins: bool = False) -> None:
    """Check a program against the rules above.

    Args:
        gm: FX(loops), or the program itself.
        origins: Whether origins are demanded (L12).

    Raises:
        VerifyError: With all findings, and the text of the first item concerned.
    """
    program = program_of(gm, "loops", "L14")
    findings = Findings("loops")
    check_program(program, findings, origins=origins)
    for k, item in enumerate(program.items):
        if not isinstance(item, (Nest, Extern)):
            findings.add("L13", f"item {k}", f"a {type(item).__name__} in a loops program")
    if program.placement is not None:
        findings.add("L13", "placement", "a loops program has no placement")
    findings.raise_if_any(program)


def program_of(gm: fx.GraphModule | Program, dialect: str, rule: str) -> Program:
    """Return the program of a view; a graph that is none breaks `rule`.

    Raises:
        VerifyError: The graph is no view of a program.
    """
    if isinstance(gm, Program):
        return gm
    try:
        return from_fx(gm)
    except InvalidArgumentError as error:
        hints = step_between(dialect_of(gm), dialect)
        raise VerifyError(dialect, [(rule, "graph", error.explanation)], hints=hints) from error
