"""A table of measured schedules, as data: kind of kernel -> the choices that were fastest, and by how much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Machine, Target

__all__ = ["Row", "Table"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of kernel.

    Args:
        choices: What runs fastest, by the words of a schedule plan; no words: nothing was faster than the policy's.
        us: Microseconds of a launch by these choices, the median over the rounds.
        policy_us: Those of the policy's choices, in the same rounds.
        policy: Name and version of that policy.
        text: The kernel, for readers.
    """

    choices: Mapping[str, str | int]
    us: float
    policy_us: float
    policy: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """What was measured on one target. Two tables of one target differ in lines of text where they differ.

    Args:
        target: What for; where it isn't equal, the table says nothing.
        rows: By `intarsia_scheduler.key_of` the kernel.

    Example:
        >>> table = Table(Target(isa="avx2")).with_rows({"k": Row({"unroll 0": 8}, 10.0, 12.0, "measured 1", "")})
        >>> Table.from_json(table.to_json()) == table
        True
    """

    target: Target
    rows: Mapping[str, Row] = field(default_factory=lambda: MappingProxyType({}))

    def with_rows(self, rows: Mapping[str, Row]) -> Table:
        """Return the table with these rows, in place of those of the same kernels."""
        return Table(self.target, MappingProxyType({**self.rows, **rows}))

    def to_json(self) -> str:
        """Return the table as JSON, sorted by kernel, a line for each choice and each line of a kernel's text."""
        rows = {key: {**asdict(row), "text": row.text.splitlines()} for key, row in sorted(self.rows.items())}
        return json.dumps({"schema": SCHEMA, "target": asdict(self.target), "kernels": rows}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Table:
        """Return the table with this text.

        Raises:
            InvalidArgumentError: `tuner.table`: it is no table of this schema.
        """
        try:
            return _parsed(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(
                f"no table of measured schedules of schema {SCHEMA}: {error!r}",
                code="tuner.table",
                hints=("delete it: it is made again where it is needed",),
            ) from error


def _parsed(data: Any) -> Table:
    if data["schema"] != SCHEMA:
        raise ValueError(f"its schema is {data['schema']!r}")
    target: dict[str, Any] = dict(data["target"])
    measured = target.pop("measured")
    rows = {key: Row(**{**row, "text": "\n".join(row["text"])}) for key, row in data["kernels"].items()}
    if any(not isinstance(n, float | int) for row in rows.values() for n in (row.us, row.policy_us)):
        raise ValueError("a time is no number")
    if any(not isinstance(v, str | int) for row in rows.values() for v in row.choices.values()):
        raise ValueError("a choice is neither a word nor a number")
    return Table(Target(**target, measured=Machine(**measured) if measured else None), MappingProxyType(rows))
