"""The loops dialect: nests and extern calls, one nest per op."""

from intarsia_loops.loops.interpret import interpret
from intarsia_loops.loops.text import parse_ir, print_ir
from intarsia_loops.loops.verify import verify

__all__ = ["interpret", "parse_ir", "print_ir", "verify"]
