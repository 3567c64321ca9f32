"""What a machine's numbers mean for tiles and launches; fractions of them are from measurements on an H200."""

from __future__ import annotations

from intarsia_ir.records import Machine

__all__ = ["below", "longest_row", "most_programs", "most_warps", "rows_bytes"]


def below(n: int) -> int:
    """Return the largest power of two up to `n`, which is positive."""
    return 1 << (n.bit_length() - 1)


def longest_row(machine: Machine) -> int:
    """Return the points of the longest row that is kept in registers, in one tile: a quarter of a processor's."""
    return machine.register_bytes // 16


def rows_bytes(machine: Machine) -> int:
    """Return the bytes of a row that is read twice: with one in each processor, the cache holds those at work."""
    return below(max(1, machine.l2_bytes // machine.processors))


def most_programs(machine: Machine) -> int:
    """Return the programs into which few rows are cut at most: what is more only queues."""
    return 32 * below(machine.processors)


def most_warps(machine: Machine) -> int:
    """Return the warps that a program may have."""
    return machine.threads // machine.lanes
