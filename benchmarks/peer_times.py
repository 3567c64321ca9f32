"""torch.compile's times, measured once per card and kept in peer_times.json: what is kept, looked up and checked.

Timing torch.compile takes most of a run, and what it needs on a card changes with the card and the versions only. So
its times are kept by these, and canaries are timed again in each run: one that is off by more than 3 % means that the
kept times don't hold on this machine. Nothing here needs a GPU.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "ALLOWED",
    "KEPT",
    "Comparison",
    "PeerTime",
    "Setup",
    "canary_lines",
    "chosen",
    "keep",
    "read",
    "times_of",
    "with_times",
    "write",
]

KEPT = Path(__file__).with_name("peer_times.json")
ALLOWED = 0.03


@dataclass(frozen=True, slots=True)
class Setup:
    """On what times were measured, and what was timed.

    Args:
        card: As torch calls it.
        torch: Version.
        triton: Version; its patch level doesn't count.
        what: `"kernels"` in microseconds, `"models"` in milliseconds, or models in another mode.
    """

    card: str
    torch: str
    triton: str
    what: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "triton", ".".join(self.triton.split(".")[:2]))

    def __str__(self) -> str:
        return f"{self.card}, torch {self.torch}, triton {self.triton}"


@dataclass(frozen=True, slots=True)
class PeerTime:
    """What torch.compile took for one kernel or model.

    Args:
        time: Median, in the unit of the setup.
        first_s: Seconds of the first call.
        date: Day of the measurement, year first.
    """

    time: float
    first_s: float
    date: str


Table = Mapping[Setup, Mapping[str, PeerTime]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """With which of torch.compile's times ours are compared.

    Args:
        kept: Kept times by name; without any, all are measured.
        canaries: Of these names, torch.compile is timed again.
    """

    kept: Mapping[str, PeerTime] = field(default_factory=dict)
    canaries: Sequence[str] = ()

    def measures(self, name: str) -> bool:
        """Tell whether torch.compile is timed in this run."""
        return name in self.canaries or name not in self.kept

    def names(self, wanted: Iterable[str]) -> list[str]:
        """Return what to time: what is wanted, and the canaries, on which the comparison with kept times rests."""
        wanted = list(wanted)
        return [*wanted, *(c for c in self.canaries if self.kept and c not in wanted)]

    def of_row(self, name: str, time: float) -> dict[str, Any]:
        """Return what a row says about the time of torch.compile that it holds.

        Args:
            name: Of the kernel or model.
            time: As this run measured it, or as it was kept.
        """
        said: dict[str, Any] = {"peer": "measured" if self.measures(name) else f"kept {self.kept[name].date}"}
        if self.measures(name) and name in self.kept:
            said |= {"kept": self.kept[name].time, "deviation": round(time / self.kept[name].time - 1, 4)}
        return said


def chosen(setup: Setup, canaries: Sequence[str], *, measure: bool) -> Comparison:
    """Return the comparison with the times kept for a setup; say so where there are none.

    Args:
        setup: Of this run.
        canaries: Names that are timed again in each run.
        measure: Leave out what is kept: all are timed.
    """
    kept = {} if measure else read(_source()).get(setup, {})
    if not measure and not kept:
        print(f"no times of torch.compile are kept for {setup}: it is timed in this run", flush=True)
    return Comparison(kept, canaries)


def keep(setup: Setup, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write torch.compile's times of rows beside those that are kept, with the day."""
    times = times_of(setup, rows, datetime.date.today().isoformat())
    write(_target(), with_times(read(_source()), setup, times))
    print(f"{len(times)} times of torch.compile are kept in {_target()}")


def _source() -> Path:
    """Return the file to read: what was written to `$OUT` before, or what is kept."""
    return _target() if _target().exists() else KEPT


def _target() -> Path:
    """Return the file to write: in `$OUT` where there is such a folder."""
    return Path(os.environ["OUT"]) / KEPT.name if "OUT" in os.environ else KEPT


def read(path: Path) -> Table:
    """Return all kept times; none where there is no file."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    times = [{name: PeerTime(**time) for name, time in row.pop("times").items()} for row in rows]
    return {Setup(**row): of_row for row, of_row in zip(rows, times, strict=True)}


def write(path: Path, table: Table) -> None:
    """Write all times, one line each, in an order that doesn't depend on when they were measured."""
    rows = []
    for setup in sorted(table, key=lambda s: (s.card, s.torch, s.triton, s.what)):
        head = asdict(setup)
        times = [f"  {json.dumps(name)}: {json.dumps(asdict(time))}" for name, time in sorted(table[setup].items())]
        rows.append(f' {{{json.dumps(head)[1:-1]}, "times": {{\n' + ",\n".join(times) + "\n }}")
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def times_of(setup: Setup, rows: Iterable[Mapping[str, Any]], date: str) -> dict[str, PeerTime]:
    """Return torch.compile's times in rows of gpu.py or gpu_models.py, by name; a row without one is left out."""
    name, time = ("kernel", "inductor_us") if setup.what == "kernels" else ("model", "inductor_ms")
    return {row[name]: PeerTime(row[time], row["inductor_first_s"], date) for row in rows if time in row}


def with_times(table: Table, setup: Setup, times: Mapping[str, PeerTime]) -> Table:
    """Return a table in which these times replace those of the same setup and name."""
    return {**table, setup: {**table.get(setup, {}), **times}}


def canary_lines(rows: Iterable[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each canary among rows, and whether the kept times that rows hold can be trusted."""
    lines, deviations, n_kept = [], [], 0
    for row in rows:
        n_kept += str(row.get("peer")).startswith("kept")
        if "deviation" in row:
            name = row.get("kernel") or row.get("model")
            lines.append(f"canary {name}: torch.compile {row['deviation']:+.1%} from its kept time, {row['kept']}")
            deviations.append(abs(row["deviation"]))
    if n_kept and not deviations:
        return ["no canary was timed: the kept times can't be trusted, measure again (--measure-peer)"], False
    if deviations and max(deviations) > ALLOWED:
        lines.append(f"more than {ALLOWED:.0%}: the kept times don't hold here, measure again (--measure-peer)")
        return lines, False
    return lines, True
