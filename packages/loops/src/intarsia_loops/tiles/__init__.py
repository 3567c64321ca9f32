"""The tiles dialect: launches, how each walks its points, and where numbers are kept. Between kernels and source text.

Example:
    >>> tiles = parse_ir('''// dialect: tiles 5
    ... target cpu 'avx2' 'g++' threads 2
    ... graph(%x: f32[100]) {
    ...   buffer %y: f32[]
    ...   launch total(%x, %y) i64 {
    ...     acc %s: sum f32 per (l)
    ...     for j: 100 lanes l 8 ends mask {
    ...       fold %s load(%x, j)
    ...     }
    ...     take %S = %s tree
    ...     put %y[0] = load(%S)
    ...   }
    ...   return (%y,)
    ... }
    ... ''')
    >>> verify(tiles)
    >>> import torch
    >>> interpret(tiles, torch.ones(100))
    (tensor(100.),)
"""

from intarsia_loops.tiles.interpret import interpret
from intarsia_loops.tiles.monoids import MONOIDS, Monoid, Rules
from intarsia_loops.tiles.names import index_width, touched
from intarsia_loops.tiles.program import (
    SCHEMA,
    Acc,
    Bind,
    Check,
    Fold,
    For,
    GridWalk,
    Hold,
    If,
    Last,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Tiles,
    Turn,
    Update,
    VectorWalk,
    statements,
)
from intarsia_loops.tiles.text import parse_ir, print_ir
from intarsia_loops.tiles.verify import verify
from intarsia_loops.tiles.walks.expand import expand, expanded

__all__ = [
    "MONOIDS",
    "SCHEMA",
    "Acc",
    "Bind",
    "Check",
    "Fold",
    "For",
    "GridWalk",
    "Hold",
    "If",
    "Last",
    "Launch",
    "Monoid",
    "Put",
    "Rules",
    "Run",
    "Statement",
    "Take",
    "Tiles",
    "Turn",
    "Update",
    "VectorWalk",
    "expand",
    "expanded",
    "index_width",
    "interpret",
    "parse_ir",
    "print_ir",
    "statements",
    "touched",
    "verify",
]
