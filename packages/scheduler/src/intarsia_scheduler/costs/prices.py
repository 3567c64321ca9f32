"""What code costs: nanoseconds for each thing that is counted, and how they add up to the time of a kernel.

Things of one group wait for each other, groups overlap, as far as one is much dearer than the others, and the rest is
added:

    time = sum of the rest + (sum over groups of (sum of the group) ** 3) ** (1 / 3)

Prices are of one machine: from its peaks, or fitted to measured kernels and kept in a file that people can read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target

__all__ = ["SHARPNESS", "Counts", "Tally", "WalkPrices", "walks_of_json"]

Counts = Mapping[str, float]


class Tally(dict[str, float]):
    """Counts that grow; what was never counted is 0."""

    def __missing__(self, name: str) -> float:
        return 0.0

    def add(self, counts: Counts) -> None:
        """Count what another one has as well."""
        for name, n in counts.items():
            self[name] += n


# what is counted on a CPU, in vectors where nothing else is said, and on a GPU, in points; see the modules that count
CPU = (
    ("addition", "function", "slow", "dear", "fold", "extremum"),
    ("quotient",),
    ("move", "again", "near", "middle", "far", "away"),
    ("strided", "turned", "serial", "loop", "kernel", "wake"),
)
GPU = (("light", "heavy"), ("near", "far", "again", "apart"), ("tiles", "serial", "launch", "kernel"))
SHARPNESS = 3.0
# what a core takes for one of each, in additions of a vector: the shape of calibrations, in round numbers
CORE = {
    "addition": 1.0, "function": 11.0, "slow": 13.0, "dear": 40.0, "fold": 0.5, "extremum": 2.0, "quotient": 5.0,
    "move": 2.0, "again": 0.5, "strided": 2.5, "turned": 0.3, "serial": 1.5, "loop": 1.0,
}  # fmt: skip
LOADED = 3.0  # a target's rate is what kernels reach with their loads; without them additions are so much faster
# instructions of a GPU for a unit of a function's weight: an erf has twelve units, and of the 38 instructions of a
# bias + gelu over bf16 about 10 move and convert (docs/benchmarks.md)
HEAVY_UNIT = 2.5
CACHED = 2  # how much faster a GPU's last cache is than its memory, where nobody measured it
CALL = 60.0  # nanoseconds for a kernel of one thread


@dataclass(frozen=True, slots=True)
class WalkPrices:
    """Prices of a machine.

    Args:
        machine: What they are of, for people.
        groups: Names of what is counted: groups that overlap, and last, what is added to them.
        ns: Nanoseconds by name; what is missing is free.
    """

    machine: str
    groups: tuple[tuple[str, ...], ...]
    ns: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, target: Target) -> WalkPrices:
        """Return what the target's peaks say, and on a CPU what a core usually takes for each thing by its vectors'."""
        machine = target.machine if target.is_gpu else target.machine.scaled(1)
        cached = 1 / (machine.l2_gb_per_s or machine.gb_per_s * (CACHED if target.is_gpu else 1))
        if target.is_gpu:
            ns = {
                "light": 1 / machine.gflop_per_s, "heavy": HEAVY_UNIT / machine.gflop_per_s, "near": cached,
                "again": cached, "far": 1 / machine.gb_per_s, "apart": 32 * cached, "launch": 1e3 * machine.launch_us,
            }  # fmt: skip
        else:
            vector = machine.vector_bytes / 4 / (LOADED * machine.gflop_per_s)
            # vectors come from the first level as `move` says; what lies further away adds to that
            ns = {name: n * vector for name, n in CORE.items()}
            ns |= {"far": cached / 8, "away": cached / 4, "kernel": CALL, "wake": 1e3 * machine.launch_us}
        return cls(f"{target.device} {target.isa}, by its peaks", GPU if target.is_gpu else CPU, tuple(ns.items()))

    def kernel_us(self, counts: Counts) -> float:
        """Return the microseconds that a kernel with these counts is predicted to take.

        Example:
            >>> prices = WalkPrices("mine", (("addition",), ("move",), ("kernel",)), (("addition", 2.0), ("move", 2.0)))
            >>> [round(prices.kernel_us({"addition": 500.0, "move": n}), 2) for n in (0.0, 250.0, 500.0)]
            [1.0, 1.04, 1.26]
        """
        ns = {name: price * counts.get(name, 0.0) for name, price in self.ns}
        *overlapping, rest = [sum(ns.get(name, 0.0) for name in group) for group in self.groups]
        return float(rest + sum(t**SHARPNESS for t in overlapping) ** (1 / SHARPNESS)) / 1e3

    def to_data(self) -> dict[str, Any]:
        """Return the prices as data that JSON holds."""
        return {"machine": self.machine, "groups": self.groups, "ns": dict(self.ns)}


def walks_of_json(text: str) -> WalkPrices:
    """Return the prices in a file that `python -m intarsia_study.calibrate` wrote.

    Raises:
        InvalidArgumentError: `scheduler.calibration`: there are none in it.
    """
    try:
        data = json.loads(text)["walks"]
        groups = tuple(tuple(map(str, group)) for group in data["groups"])
        if groups not in (CPU, GPU):
            raise ValueError("other things were counted")
        return WalkPrices(str(data["machine"]), groups, tuple((str(n), float(p)) for n, p in data["ns"].items()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"no prices of walks in this calibration: {error!r}",
            code="scheduler.calibration",
            hints=("make it again: python -m intarsia_study.calibrate",),
        ) from error
