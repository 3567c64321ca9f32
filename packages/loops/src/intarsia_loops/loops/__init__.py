"""The loops dialect: nests and extern calls, one nest per op."""

from intarsia_loops.loops.interpret import interpret

__all__ = ["interpret"]
