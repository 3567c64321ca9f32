"""Random programs whose value at every level goes through text: `python -m integration.values --results rows.jsonl`.

A program is compiled twice, in inference and in training, of static and of symbolic sizes: once as usual, and once with
the value that each stage takes written as text and read back, so that the rest of the pipeline runs from the file. Each
text must read back as itself and as an equal value, each stage must give the text that it gives in the usual run, and
results, what was written to inputs, and gradients must have the same bits. A row of the file is one program in one
mode; a run that finds rows there goes on behind them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import intarsia
from intarsia.levels import Captured, Functional, Partition, Recorded
from intarsia_loops.level_text import constants_of, parse_value, print_value
from intarsia_recorder import EagerMode
from intarsia_shapes import thawed

__all__ = ["MODES", "Program", "check", "main", "program_of"]

MODES = tuple((train, dynamic) for train in (False, True) for dynamic in (False, True))
"""Whether gradients are asked for, and whether sizes are symbolic."""

_THAW = functools.partial(thawed, kind=EagerMode)
_INDEX = torch.tensor([3, 0, 0, 2])
_TABLE = torch.linspace(-1.0, 1.0, 20).reshape(5, 4)


def _written_view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:3].mul_(3.0)
    return y


def _in_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x).float()


def _without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.abs().mean()
    return x * scale


def _conjugated(x: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(4, 2, 2).contiguous())
    return torch.view_as_real(pairs.conj().resolve_conj()).reshape(4, 4)


def _broken(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0 if x.detach().sum().item() > 0.0 else x - 1.0


UNARY: dict[str, Callable[[Any], Any]] = {
    "sin": torch.sin,
    "gelu": F.gelu,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "mean": lambda x: x - x.mean(0, keepdim=True),
    "var": lambda x: x / (x.var(1, keepdim=True) + 1.0),
    "t": lambda x: x.t(),
    "slice": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    "view": lambda x: x.reshape(-1)[: x.shape[0]].sum() + x,
    "written": lambda x: x.clone().mul_(2.0).add_(1.0),
    "written view": _written_view,
    "dropout": lambda x: F.dropout(x, 0.25),
    "noise": lambda x: x + torch.rand_like(x),
    "layer_norm": lambda x: F.layer_norm(x, (4,)) if x.shape[-1] == 4 else x,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.exp().sin(), x, use_reentrant=False),
    "max": lambda x: x.max(0).values + x,
    "cast": lambda x: x.to(torch.float64).mul(0.5).to(torch.float32),
    "half": lambda x: x.to(torch.bfloat16).tanh().to(torch.float32),
    "autocast": _in_autocast,
    "no_grad": _without_gradients,
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(0).values,
    "select": lambda x: x[_INDEX],
    "embedding": lambda x: x + F.embedding(x.detach().argmax(1), _TABLE),
    "masked": lambda x: x.masked_fill(x > 0.5, 0.0),
    "scatter": lambda x: x.scatter_add(1, _INDEX.expand(4, 4), x),
    "conv": lambda x: F.conv1d(x[None], x[:, :, None].mean(2, keepdim=True), padding=0)[0],
    "pad": lambda x: F.pad(x, (1, 1))[:, 1:-1],
    "pool": lambda x: F.max_pool1d(x[None], 3, 1, 1)[0],
    "strided": lambda x: x.t().contiguous().as_strided((4, 4), (1, 4)),
    "integers": lambda x: x * (x.detach() * 3.0).to(torch.int64).remainder(3),
    "complex": _conjugated,
    "fft": lambda x: torch.fft.fft(x).real,
    "empty": lambda x: x + x[:0].sum(),
    "broken": _broken,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "matmul": lambda x, y: x @ y.t() @ y,
    "addmm": lambda x, y: torch.addmm(x, y, x, beta=0.5),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "into": lambda x, y: x.clone().copy_(y) * x,
    "stack": lambda x, y: torch.stack([x, y]).amax(0),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None])[0],
    "loss": lambda x, y: x * F.mse_loss(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A function of some (4, 4) tensors of f32; it may write its last one, and return views and inputs.

    Args:
        n_inputs: How many it takes.
        steps: What is computed, one after the other: a name above, and which values it takes.
        outputs: Which values are results beside the last one.
        writes: It writes its last input.
        views: The last result is a view; otherwise it is a sum.
    """

    n_inputs: int
    steps: tuple[tuple[str, int, int], ...]
    outputs: tuple[int, ...]
    writes: bool
    views: bool

    def function(self) -> Callable[..., Any]:
        """Return the function, new each time: what is compiled of one is kept by its code."""

        def program(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            *others, written = inputs
            # autograd may save the values: what is written is another tensor, or one that only a copy is taken of
            values = [*others, written.clone()]
            for name, first, second in self.steps:
                operands = (values[first],) if name in UNARY else (values[first], values[second])
                values.append((UNARY | BINARY)[name](*operands))
            if self.writes:
                written.detach().add_(values[-1].detach().mean())
            last = values[-1].t() if self.views else values[-1].sum()
            return (*[values[o] for o in self.outputs], last)

        return program


def program_of(seed: int) -> Program:
    """Return the program of a number: the same one in every process."""
    draw = random.Random(seed)
    n_inputs = draw.randint(1, 3)
    names = [*UNARY, *BINARY]
    steps = tuple(
        (draw.choice(names), draw.randrange(n_inputs + number), draw.randrange(n_inputs + number))
        for number in range(draw.randint(1, 6))
    )
    outputs = tuple(draw.randrange(n_inputs + len(steps)) for _ in range(draw.randint(0, 2)))
    return Program(n_inputs, steps, outputs, draw.random() < 0.5, draw.random() < 0.5)


def check(program: Program, *, train: bool, dynamic: bool) -> int:
    """Compile and run a program as usual and from texts.

    Returns:
        How many texts were read back.

    Raises:
        AssertionError: Something differs; it says what, and behind which stage.
    """
    return check_run(lambda pipeline: _run(program, pipeline, train=train, dynamic=dynamic))


def check_run(run: Callable[[intarsia.Pipeline], Sequence[Any]]) -> int:
    """Run the same through the default pipeline as usual and from texts, as `check` does a program.

    Args:
        run: Compiles with a pipeline, and returns what is compared: tensors, or None.
    """
    texts: list[tuple[str, str]] = []
    wanted = run(_pipeline(lambda stage: _noted(stage, texts)))
    expected = iter(texts)
    found = run(_pipeline(lambda stage: _from_text(stage, expected)))
    missing = next(expected, None)
    assert missing is None, f"stage {missing and missing[0]} ran in the usual run alone"
    _same_tensors(found, wanted)
    return len(texts)


def values_of(program: Callable[..., Any], inputs: Sequence[Any], *, dynamic: bool) -> dict[str, Any]:
    """Compile and call a program; return the values that its first graph had, each by the stage that took it."""
    found: dict[str, Any] = {}

    def noted(stage: Any) -> Any:
        def run(value: Any) -> Any:
            found.setdefault(stage.name, value)
            return stage(value)[0]

        return _stage(stage, run)

    intarsia.reset()
    intarsia.compile(program, pipeline=_pipeline(noted), dynamic=dynamic, options={"on_error": "raise"})(*inputs)
    return found


def _pipeline(through: Callable[[Any], Any]) -> intarsia.Pipeline:
    return intarsia.Pipeline(tuple(map(through, intarsia.default_pipeline().stages)))


def _run(program: Program, pipeline: intarsia.Pipeline, *, train: bool, dynamic: bool) -> list[Any]:
    """Return what a run leaves: results, inputs, gradients."""
    intarsia.reset()
    torch.manual_seed(0)
    leaves = [torch.randn(4, 4, requires_grad=train) for _ in range(program.n_inputs)]
    inputs = [x * 1 for x in leaves]
    compiled = intarsia.compile(program.function(), pipeline=pipeline, dynamic=dynamic, options={"on_error": "raise"})
    with torch.set_grad_enabled(train):
        results = compiled(*inputs)
        graded = [r for r in results if r.requires_grad]
        if graded:
            torch.autograd.backward([(r * r).sum() for r in graded])
    return [*[r.detach() for r in results], *[x.detach() for x in inputs], *[x.grad for x in leaves]]


def _stage(stage: Any, run: Callable[[Any], Any]) -> Any:
    """Return a stage that is run on all graphs of a partition at once, as its value is one text."""
    whole = stage.takes in (Captured, Recorded, Functional)
    gives = stage.gives if whole else Partition[stage.gives]
    takes = stage.takes if whole else Partition[stage.takes]
    return dataclasses.replace(stage, run=run, takes=takes, gives=gives, counts=False)


def _noted(stage: Any, texts: list[tuple[str, str]]) -> Any:
    def run(value: Any) -> Any:
        texts.append((stage.name, print_value(value)))
        return stage(value)[0]

    return _stage(stage, run)


def _from_text(stage: Any, expected: Iterator[tuple[str, str]]) -> Any:
    def run(value: Any) -> Any:
        text = print_value(value)
        name, wanted = next(expected)
        assert (name, text) == (stage.name, wanted), f"stage {stage.name} takes another text:\n{text}\n{wanted}"
        back = parse_value(text, constants=constants_of(value), thaw=_THAW)
        assert print_value(back) == text, f"what stage {stage.name} takes is printed otherwise when read back"
        same_value(value, back)
        return stage(back)[0]

    return _stage(stage, run)


def same_value(one: Any, two: Any) -> None:
    """Compare two values of a level, structurally.

    Raises:
        AssertionError: They differ; it names the field.
    """
    if isinstance(one, Partition):
        assert one.halves == two.halves, "halves"
        for a, b in zip(one.graphs, two.graphs, strict=True):
            same_value(a, b)
        return
    assert type(one) is type(two), "level"
    for field in dataclasses.fields(one):
        if field.name == "launches":
            assert one.launches.launches == two.launches.launches, "launches"
            assert one.launches.scratch == two.launches.scratch, "scratch"
        elif field.name not in ("graph_module", "inputs"):
            assert getattr(one, field.name) == getattr(two, field.name), field.name
    pairs = zip(one.graph_module.graph.nodes, two.graph_module.graph.nodes, strict=True)
    assert all((a.op, a.target) == (b.op, b.target) for a, b in pairs if a.op != "get_attr"), "nodes"


def _same_tensors(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(found) == len(wanted), "number of results"
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a is None or b is None:
            assert a is b, f"gradient {number}"
            continue
        same = a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert same, f"tensor {number}: {a.dtype} {a.shape} {a.stride()}, {b.dtype} {b.shape} {b.stride()}"
        assert torch.equal(_bits(a), _bits(b)), f"tensor {number} has other bits"


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().reshape(-1).view(torch.uint8)


def _row(seed: int, train: bool, dynamic: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"program": seed, "train": train, "dynamic": dynamic}
    program = program_of(seed)
    try:
        texts = check(program, train=train, dynamic=dynamic)
    except Exception as error:  # a row says so, and the count of faults with it
        return {**row, "fault": f"{type(error).__name__}: {error}"[:4000], "steps": [s[0] for s in program.steps]}
    return {**row, "texts": texts}


def _modes(seed: int, every: bool) -> Iterator[tuple[bool, bool]]:
    """Both of inference and training; sizes static for even programs and symbolic for odd, or each way."""
    return (mode for mode in MODES if every or mode[1] == bool(seed % 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run programs, write a row for each, and print counts; return 1 if one has a fault."""
    parser = argparse.ArgumentParser(prog="python -m integration.values", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="programs, counted from 0 (2000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--every-mode", action="store_true", help="each with static sizes and with symbolic ones")
    parser.add_argument("--results", type=Path, required=True, help="rows, one JSON object a line; appended to")
    given = parser.parse_args(arguments)
    rows = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    done = {(row["program"], row["train"], row["dynamic"]) for row in rows}
    with given.results.open("a") as file:
        for seed in range(given.first, given.first + given.count):
            for mode in _modes(seed, given.every_mode):
                if (seed, *mode) not in done:
                    rows.append(_row(seed, *mode))
                    print(json.dumps(rows[-1]), file=file, flush=True)
    faults = [row for row in rows if "fault" in row]
    kinds = Counter(row["fault"].splitlines()[0][:160] for row in faults)
    programs, texts = len({row["program"] for row in rows}), sum(row.get("texts", 0) for row in rows)
    print(f"{programs} programs, {len(rows)} runs, {texts} texts, {len(faults)} faults")
    for kind, count in kinds.most_common():
        print(f"  {count} x {kind}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
