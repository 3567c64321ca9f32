"""Fusion policies compared: kernels, bytes moved, predicted and measured time; a table, plots, a dataset.

    python benchmarks/fusion_study.py                                        # the shipped policies on the demo models
    python benchmarks/fusion_study.py --policies greedy,mine:Epilogues --programs softmax,mine:attention
    python benchmarks/fusion_study.py --random 40 --dataset study.parquet --plots plots/ --plans plans/
    python benchmarks/fusion_study.py --cost calibration.json --rounds 0     # static figures, by a calibrated model

A policy is a name below, or `module:name` of a policy or of what makes one when called. A program is a demo model, or
`module:name` of a function that returns a callable and the tuple of its arguments, or what `programs_of` returns; each
is captured once, by our own tracer. `--random` adds so many random legal plans. Every plan's results are checked before
it is timed. What is measured is the CPU time of one thread in generated kernels, so other work on the machine costs
little, and library calls, which are the same in every plan, are left out. Predictions are of what the schedule makes,
by the target's peaks or, with `--cost`, by a calibration. "rank" is Spearman's, of predicted against measured time.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, "")

import torch

from intarsia_fuser import AtRandom, Greedy, InductorLike, NoFusion, Priority, Search
from intarsia_ir.choices import one_of
from intarsia_ir.errors import IntarsiaError, InvalidArgumentError
from intarsia_loops.program import Nest
from intarsia_scheduler import Walked, walks_of_json
from intarsia_study import Record, StudyProgram, programs_of, spearman, study, write_parquet
from integration.models import EXTRA, MODELS, make

POLICIES: Mapping[str, Callable[[], Any]] = {
    "no_fusion": NoFusion,
    "inductor_like": InductorLike,
    "greedy": Greedy,
    "priority": Priority,
    "search": Search,
}
DEMOS = (*MODELS, *(spec.name for spec in EXTRA))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Args:
        program: Name of the program.
        policy: Name of the policy.
        kernels: Generated kernels.
        mbytes: Megabytes that they read and write.
        predicted_us: The cost model's time for them.
        measured_us: Median CPU time of one thread; None when nothing was measured.
        best_us: That of the best rounds.
        plan_ms: Time of `plan`.
    """

    program: str
    policy: str
    kernels: int
    mbytes: float
    predicted_us: float
    measured_us: float | None
    best_us: float | None
    plan_ms: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = _arguments()
    options = parser.parse_args(argv)
    try:
        _check(options)
        policies = [policy_named(name) for name in options.policies.split(",")]
    except IntarsiaError as error:
        parser.error(str(error))
    prices = walks_of_json(options.cost.read_text(encoding="utf-8")) if options.cost else None
    policies += [AtRandom(seed) for seed in range(options.random)]
    records: list[Record] = []
    for name in options.programs.split(","):
        print(f"{name} ...", file=sys.stderr, flush=True)
        for program in program_named(name):
            if not any(isinstance(item, Nest) for item in program.program.items):
                print(f"{program.name} has nothing to fuse: all of it is library calls", file=sys.stderr)
                continue
            cost = Walked(program.target, prices) if prices else None
            found = study(program, policies, cost=cost, rounds=options.rounds)
            records += found
            print(table([_row(r) for r in found if not r.policy.startswith("at_random")]))
            if options.rounds and len(found) > 2:
                rank = spearman([r.predicted_us for r in found], [r.best_us or 0.0 for r in found])
                print(f"rank of {len(found)} plans of {program.name} by {found[0].cost}: {rank:.2f}\n")
            if options.dataset:
                write_parquet(records, options.dataset)
            for record in found if options.plans else ():
                options.plans.mkdir(parents=True, exist_ok=True)
                path = options.plans / f"{record.program}.{record.policy.split()[0]}.json"
                path.write_text(record.plan, encoding="utf-8")
            if options.plots:
                plot(program, found, options.plots)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse what would fail only after something was measured.

    Raises:
        IntarsiaError: A name that nothing has, a package that isn't installed.
    """
    for name in options.programs.split(","):
        if ":" in name:
            _imported(name)
        else:
            one_of("a program", name, DEMOS)
    needed = {"matplotlib": options.plots, "pyarrow": options.dataset}
    for package in (p for p, path in needed.items() if path and importlib.util.find_spec(p) is None):
        raise InvalidArgumentError(
            f"{package} isn't installed, which --plots or --dataset needs",
            code="options.value",
            hints=(f"pip install {package}",),
        )


def policy_named(name: str) -> Any:
    """Return the policy of a name of `POLICIES`, or of `module:name`."""
    if ":" not in name:
        one_of("a policy", name, tuple(POLICIES))
        return POLICIES[name]()
    made = _imported(name)
    return made() if isinstance(made, type) or not hasattr(made, "decide") else made


def program_named(name: str) -> tuple[StudyProgram, ...]:
    """Return the programs of a demo model, or of what `module:name` returns."""
    made = make(name) if ":" not in name else _imported(name)()
    if isinstance(made[0], StudyProgram):
        return tuple(made)
    function, arguments = made
    return programs_of(function, *arguments, name=name.rpartition(":")[2])


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    names = [f.name for f in fields(Row)]
    cells = [names] + [[_cell(getattr(r, n)) for n in names] for r in rows]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    return "\n".join(
        "  ".join(c.ljust(w) if j < 2 else c.rjust(w) for j, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    )


def plot(program: StudyProgram, records: Sequence[Record], folder: Path) -> None:
    """Draw predicted against measured time, a point for each plan, as `<folder>/<program>.svg`."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(5, 5), layout="tight")
    axes = figure.subplots()
    for record in records:
        drawn = record.policy.startswith("at_random")
        axes.scatter(record.predicted_us, record.best_us or 0.0, s=12, label=None if drawn else record.policy,
                     color="lightgrey" if drawn else None)  # fmt: skip
    axes.set(xlabel=f"predicted us, {records[0].cost}", ylabel="measured us", title=program.name)
    axes.legend(fontsize=7)
    figure.savefig(folder / f"{program.name}.svg")


def _row(record: Record) -> Row:
    known = asdict(record)
    return Row(**{f.name: known[f.name] for f in fields(Row)})


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{name!r} can't be imported: {error}",
            code="options.value",
            hints=("modules are looked for in the current folder and on PYTHONPATH",),
        ) from error


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", default=",".join(MODELS), help="comma-separated (default: the demo models)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated (default: the shipped ones)")
    parser.add_argument("--random", type=int, default=0, help="random legal plans of each program, beside")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timing; 0: static figures only")
    parser.add_argument("--cost", type=Path, help="a calibration, as intarsia_study.calibrate makes it")
    parser.add_argument("--dataset", type=Path, help="write every plan, its features and times to this Parquet file")
    parser.add_argument("--plots", type=Path, help="draw predicted against measured time into this folder")
    parser.add_argument("--plans", type=Path, help="write every plan as JSON into this folder")
    return parser


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    with torch.no_grad():
        raise SystemExit(main())
