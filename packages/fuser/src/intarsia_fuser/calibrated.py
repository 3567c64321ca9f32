"""A cost model whose numbers were measured: what a kernel does, each thing with a price.

Moving bytes and computing on vectors go on at the same time, so of these two the dearer one counts; the rest is added.
The prices are nanoseconds for each of the counts in `features`, none of them negative, so that more work never costs
less. They belong to one machine and are kept in a file that people can read; `python -m intarsia_study.calibrate` makes
one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from intarsia_fuser.cost import KernelWork
from intarsia_fuser.emitted import Emitted
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["COMPUTING", "MOVING", "Calibrated", "features"]

SCHEMA = 1
# footprints that stay in the first cache levels of a processor, and in the last one
NEAR, MIDDLE = 1 << 18, 1 << 21


def features(work: KernelWork) -> dict[str, float]:
    """Return the counts of a kernel that have a price: itself, what is emitted for it, and the bytes that it moves.

    Example:
        >>> found = features(KernelWork(4096, 4096, 1024, 1024, 1024, Emitted(light=1024.0)))
        >>> {name: number for name, number in found.items() if number}
        {'kernel': 1.0, 'light': 1024.0, 'bytes_near': 8192.0}
    """
    moved = float(work.bytes_read + work.bytes_written)
    emitted = work.emitted or Emitted(light=float(work.flops))
    level = "near" if moved <= NEAR else "middle" if moved <= MIDDLE else "far"
    counts = {field.name: float(getattr(emitted, field.name)) for field in fields(Emitted)}
    return {"kernel": 1.0, **counts, **{f"bytes_{n}": moved * (n == level) for n in ("near", "middle", "far")}}


# which features belong to which of the two that overlap
MOVING = frozenset({"bytes_near", "bytes_middle", "bytes_far"})
COMPUTING = frozenset({"light", "heavy", "loads", "stores", "folds"})


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Time by measured prices.

    Args:
        machine: What was measured, for people and for plans.
        prices: Nanoseconds for one of each of the `features`; what is missing is free.
    """

    machine: str
    prices: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"calibrated({self.machine})"

    def kernel_us(self, work: KernelWork) -> float:
        """Return the predicted time in microseconds.

        Example:
            >>> Calibrated("mine", (("kernel", 500.0), ("light", 0.25))).kernel_us(
            ...     KernelWork(0, 0, 1000, 1000, 1, Emitted(light=1000.0)))
            0.75
        """
        found = features(work)
        moving = computing = rest = 0.0
        for name, price in self.prices:
            ns = price * found[name]
            if name in MOVING:
                moving += ns
            elif name in COMPUTING:
                computing += ns
            else:
                rest += ns
        return (max(moving, computing) + rest) / 1e3

    def to_json(self) -> str:
        """Return the model as JSON text."""
        return json.dumps({"schema": SCHEMA, "machine": self.machine, "ns": dict(self.prices)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Calibrated:
        """Return the model that `to_json` wrote.

        Raises:
            InvalidArgumentError: `fuser.calibration`: the text is no calibration, or prices something unknown.
        """
        try:
            data: Mapping[str, Any] = json.loads(text)
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']}, not {SCHEMA}")
            prices = {str(name): float(ns) for name, ns in data["ns"].items()}
            unknown = prices.keys() - features(KernelWork(0, 0, 0, 0, 0)).keys()
            if unknown or min(prices.values(), default=0.0) < 0.0:
                raise ValueError(f"unknown or negative prices: {sorted(unknown)}")
            return cls(str(data["machine"]), tuple(prices.items()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(f"not a calibration: {error!r}", code="fuser.calibration") from error
