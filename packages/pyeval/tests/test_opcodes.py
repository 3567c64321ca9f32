"""The tables cover every opcode: each is traced, breaks with a reason, or never reaches the evaluator."""

from __future__ import annotations

import dis
import json

from intarsia_bytecode.decode import FOLDED
from intarsia_pyeval.opcodes import breaks, table


def opcodes():
    """Return the real opcodes of this Python."""
    pseudo = {"CACHE"} if "CACHE" in dis.opmap else set()
    return {n for n, number in dis.opmap.items() if number < 256 and not n.startswith("INSTRUMENTED_")} | pseudo


def test_every_opcode_is_traced_or_has_a_reason():
    traced = set(table()) - set(breaks())
    named = set(breaks()) | set(FOLDED)
    assert not opcodes() - traced - named
    assert not traced & named
    assert all(reason for reason in [*breaks().values(), *FOLDED.values()])
    counts = {"traced": len(traced & opcodes()), "break": len(set(breaks()) & opcodes()), "folded": len(FOLDED)}
    print("opcodes:", json.dumps(counts))


def test_tables_name_only_opcodes_of_this_python():
    assert not set(table()) - opcodes()
