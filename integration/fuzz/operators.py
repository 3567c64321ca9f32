"""Random programs of operators: chains of calls over tensors of all types, layouts and special values.

A program is a function of three tensors whose lines eager can run; every line's value is a result. Results must agree
with eager in type, shape, the strides that matter and, within a few units in the last place and line by line, in
value; what eager raises must be raised. A program that differs is made small by leaving lines out.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

import intarsia
from intarsia import UnsupportedError
from integration.fuzz.batches import BATCH, guarded, run_examples, spawn
from integration.fuzz.operator_table import EXPRESSIONS, NUMBERS, SPECIAL, TYPES
from integration.fuzz.run import load

__all__ = ["Program", "check", "main", "programs", "run_batch"]

_BYTES = 4000
_COUNTED = ("frames_compiled", "kernels_generated", "fallbacks")
_LARGEST = 4000  # elements of a value
_HOLE = re.compile(r"\$([xydkst])|<([^<>=]*\|[^<>=]*)>")
_TOLERANCE = {
    torch.float16: (4e-3, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
    torch.float32: (2e-4, 1e-5),
    torch.float64: (1e-7, 1e-8),
}
# Where eager itself is off, and ours needs only be right: its vector kernels of sinh and cosh give infinity above 88.7
# (a double: 709.7) for whole vectors only, so as many elements as the machine's vectors have decide; batch norm on the
# CPU computes x * a + b, which cancels where a channel varies little beside its mean; vectors of gelu double x first,
# which is infinite above 1.7e38; a product of half-precision numbers is rounded behind each factor, and where it
# overflows on the way depends on their order.
_EAGER_IS_OFF = re.compile(r"\b(sinh|cosh|batch_norm|gelu|prod)\b")
# A line may move by as many times what its operands' last bits move it by: as often a sum of a row is rounded.
_ROUNDINGS = 8
# What computes a part of its result in each operand's own type before these meet.
_BY_PARTS = re.compile(r"\bcosine_similarity\b")
_PRELUDE = """\
import torch
import torch.nn.functional as F
INF, NAN = float("inf"), float("nan")
def written(x):
    x = x.clone()
    x[..., :1] += 1
    x[:1].mul_(2)
    return x
"""
Choose = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Program:
    """One function of `a`, `b` and `c`.

    Args:
        lines: Name -> expression over the names before it, in order.
        arguments: The three tensors.
    """

    lines: tuple[tuple[str, str], ...]
    arguments: tuple[torch.Tensor, ...]

    def source(self) -> str:
        """Return a module that defines `f`, which returns the value of each line."""
        body = "".join(f"    {name} = {text}\n" for name, text in self.lines)
        return f"{_PRELUDE}def f(a, b, c):\n{body}    return ({''.join(f'{name}, ' for name, _ in self.lines)})\n"

    def __str__(self) -> str:
        used = " ".join(text for _, text in self.lines)
        given = [f"{n}: {x.dtype} {tuple(x.shape)} {x.stride()}" for n, x in zip("abc", self.arguments, strict=True)
                 if re.search(rf"\b{n}\b", used)]  # fmt: skip
        return "\n".join([*(f"    {name} = {text}" for name, text in self.lines), "    " + "; ".join(given)])


@st.composite
def programs(draw: Callable[[Any], Any]) -> Program:
    """Return a strategy for programs; eager can run every line."""
    stream = iter(draw(st.binary(min_size=_BYTES, max_size=_BYTES)))
    return _program(lambda n: next(stream, 0) % n)


# ---- writing ------------------------------------------------------------------------------------------------


def _program(choose: Choose) -> Program:
    first, second, third = (_tensor(choose) for _ in range(3))
    if choose(5) < 3:  # operands of one shape and type fit more operators
        second = first.flip(0).clone() if first.dim() else first.clone()
    names: dict[str, Any] = {}
    exec(_PRELUDE, names)
    values = {"a": first, "b": second, "c": third}
    lines: list[tuple[str, str]] = []
    wanted = (2, 3, 4, 6)[choose(4)]
    for _ in range(60):
        if len(lines) == wanted:
            break
        text = _expression(choose, list(values))
        value = _value(text, names | values)
        # a last line may raise
        if isinstance(value, torch.Tensor) or (value is not None and len(lines) == wanted - 1 and choose(16) == 0):
            values[f"v{len(lines)}"] = value
            lines.append((f"v{len(lines)}", text))
    return Program(tuple(lines), (first, second, third))


def _value(text: str, names: dict[str, Any]) -> torch.Tensor | Exception | None:
    """Return what eager makes of an expression, or raises; None when that is no tensor of a fit size."""
    try:
        value = eval(text, names)
    except Exception as error:
        return error
    fits = isinstance(value, torch.Tensor) and value.numel() <= _LARGEST and not value.is_complex()
    return value if fits else None


def _expression(choose: Choose, names: list[str]) -> str:
    kinds = list(EXPRESSIONS)
    rows = EXPRESSIONS[kinds[choose(len(kinds))]]
    recent = names[-3:] if choose(10) < 6 else names
    x, y = recent[choose(len(recent))], names[choose(len(names))]
    dim, flag, number = str((0, -1, 1, -2, 2)[choose(5)]), str(bool(choose(2))), NUMBERS[choose(len(NUMBERS))]
    fixed = {"x": x, "y": y, "d": dim, "k": flag, "s": number, "t": str(TYPES[choose(len(TYPES))])}

    def fill(hole: re.Match[str]) -> str:
        if hole[1]:
            return fixed[hole[1]]
        words = hole[2].split("|")
        return words[choose(len(words))]

    return _HOLE.sub(fill, rows[choose(len(rows))])


def _tensor(choose: Choose) -> torch.Tensor:
    """Return a tensor of any type, of up to four dimensions, at times sliced, transposed, expanded or with NaN."""
    dtype, rank = TYPES[choose(len(TYPES))], (0, 1, 1, 2, 2, 2, 3, 3, 4)[choose(9)]
    sizes = (1, 2, 3, 3, 4, 5, 8, 9, 17, 0 if choose(4) == 0 else 2)
    shape = [sizes[choose(len(sizes))] for _ in range(rank)]
    whole = [size * 2 if choose(5) == 0 else size for size in shape]
    x = _elements(choose, whole, dtype)
    if choose(3) == 0 and x.numel():
        for _ in range((1, 2, 4)[choose(3)]):
            x.view(-1)[choose(min(x.numel(), 256))] = _special(choose, dtype)
    for d, (large, size) in enumerate(zip(whole, shape, strict=True)):
        if large != size:
            x = x.unfold(d, 1, 2).squeeze(-1) if choose(2) else x.narrow(d, size, size)
    if rank > 1 and choose(4) == 0:
        x = x.transpose(choose(rank), choose(rank))
    return x[:1].expand(x.shape) if rank and x.shape[0] and choose(10) == 0 else x


def _elements(choose: Choose, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(choose(256) * 256 + choose(256))
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator) * (1, 1, 3, 0.1)[choose(4)]).to(dtype)
    low, high = (0, 2) if dtype is torch.bool else ((0, 6), (-6, 6))[choose(2)]
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def _special(choose: Choose, dtype: torch.dtype) -> float | int:
    if dtype.is_floating_point:
        return SPECIAL[choose(len(SPECIAL))]
    if dtype is torch.bool:
        return choose(2)
    limits = torch.iinfo(dtype)
    return (0, 1, max(limits.min, -1), 2, 3, 7, limits.min, limits.max)[choose(8)]


# ---- comparing ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one program showed.

    Args:
        difference: What differs from eager; "" when nothing does.
        refused: Code of the UnsupportedError that ended the compiled run.
        stats: What `intarsia.stats()` counted.
    """

    difference: str
    refused: str
    stats: intarsia.Stats


def check(program: Program) -> Outcome:
    """Run a program both ways; a refusal is no difference."""
    function = load(program.source()).f
    eager = _run(function, program)
    intarsia.reset()
    try:
        ours = _run(intarsia.compile(function, options={"on_error": "raise"}), program)
    except UnsupportedError as error:
        return Outcome("", error.code, intarsia.stats())
    return Outcome(_difference(program, ours, eager), "", intarsia.stats())


def _run(function: Callable[..., Any], program: Program) -> Any:
    """Return the results, or the exception; one of ours goes on."""
    try:
        return function(*program.arguments)
    except intarsia.IntarsiaError:
        raise
    except Exception as error:
        return error


def _difference(program: Program, ours: Any, eager: Any) -> str:
    """Return the first line whose value differs from eager's, or how errors differ; "" when nothing does."""
    if isinstance(eager, Exception) or isinstance(ours, Exception):
        same = type(ours) is type(eager) and str(ours) == str(eager)
        return "" if same else f"raised {ours!r:.200}, eager {eager!r:.200}"
    names: dict[str, Any] = {}
    exec(_PRELUDE, names)
    names.update(zip("abc", program.arguments, strict=True))
    for (name, text), our_value, eager_value in zip(program.lines, ours, eager, strict=True):
        difference = _line_difference(text, names, our_value, eager_value)
        if difference:
            return f"{name} = {text}: {difference}"
        names[name] = our_value
    return ""


def _line_difference(text: str, names: dict[str, Any], ours: torch.Tensor, eager: torch.Tensor) -> str:
    """Return how the value of a line differs; `names` are our values of the lines before it."""
    kind = _roughest(text, names, eager.dtype)
    difference = _tensor_difference(ours, eager, kind)
    if difference.startswith("values"):
        # a line may make much of the last bits of the lines before it: what does eager make of our values?
        again = _value(text, names)
        if isinstance(again, torch.Tensor):
            difference = _tensor_difference(ours, again, kind)
    if difference.startswith("values") and _EAGER_IS_OFF.search(text):
        is_right = not _values_apart(ours, _exact(text, names).to(ours.dtype), kind).any()
        return "" if is_right else difference
    if difference.startswith("values") and ours.is_floating_point() and _as_near_as_it_gets(text, names, ours, kind):
        return ""
    return difference


def _as_near_as_it_gets(text: str, names: dict[str, Any], ours: torch.Tensor, kind: torch.dtype) -> bool:
    """Tell whether a line that makes much of last bits is right to what they make of it.

    A norm of a row of equal numbers is 0 if the mean is exact, and 316 times the mean's last bit if not: no better is
    to be had from a line than its exact result for operands that differ in the last bit.
    """
    exact = _exact(text, names)
    moved = [(_exact(text, _shaken(names, seed)) - exact).abs() for seed in range(16)]
    room = _ROUNDINGS * torch.stack(moved).amax(0)
    return not (_values_apart(ours, exact.to(ours.dtype), kind) & ~((ours.double() - exact).abs() <= room)).any()


def _shaken(names: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return values with each number moved up or down by the last bit of the type that lines compute in."""
    generator = torch.Generator().manual_seed(seed)

    def one(x: torch.Tensor) -> torch.Tensor:
        bit = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
        return x.double() * (1 + bit * (torch.randint(0, 2, x.shape, generator=generator) * 2 - 1))

    floats = {n: x for n, x in names.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    return names | {name: one(x) for name, x in floats.items()}


def _roughest(text: str, names: dict[str, Any], dtype: torch.dtype) -> torch.dtype:
    """Return the type whose rounding a line of this result type may show."""
    operands = [names[name].dtype for name in re.findall(r"\b(?:[abc]|v\d+)\b", text)]
    rough = [kind for kind in _TOLERANCE if kind in operands] if _BY_PARTS.search(text) else []
    return max([*rough, dtype], key=lambda kind: _TOLERANCE.get(kind, (0.0, 0.0)))


def _exact(text: str, names: dict[str, Any]) -> torch.Tensor:
    """Return what eager gives in float64, one element at a time: it does that for operands with gaps in memory."""
    apart = {n: x.double().repeat_interleave(2, -1)[..., ::2] for n, x in names.items() if isinstance(x, torch.Tensor)
             and x.dim()}  # fmt: skip
    result = eval(text, names | apart)
    assert isinstance(result, torch.Tensor)
    return result


def _tensor_difference(ours: torch.Tensor, eager: torch.Tensor, kind: torch.dtype) -> str:
    if (ours.dtype, ours.shape) != (eager.dtype, eager.shape):
        return f"{ours.dtype} {tuple(ours.shape)}, eager {eager.dtype} {tuple(eager.shape)}"
    moving = [d for d in range(eager.dim()) if eager.shape[d] > 1]
    if eager.numel() and [ours.stride(d) for d in moving] != [eager.stride(d) for d in moving]:
        return f"strides {ours.stride()}, eager {eager.stride()}"
    apart = _values_apart(ours, eager, kind)
    return f"values {ours[apart][:4].tolist()}, eager {eager[apart][:4].tolist()}" if bool(apart.any()) else ""


def _values_apart(ours: torch.Tensor, eager: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return which elements differ by more than the rounding of a type."""
    if not eager.dtype.is_floating_point:
        return ours != eager
    relative, absolute = _TOLERANCE[kind]
    return ~torch.isclose(ours.double(), eager.double(), relative, absolute, equal_nan=True)


def _reduced(program: Program, difference: str) -> tuple[Program, str]:
    """Leave lines out as long as something differs."""
    for name, _ in reversed(program.lines):
        rest = tuple((n, text) for n, text in program.lines if n != name)
        if not rest or any(re.search(rf"\b{name}\b", text) for _, text in rest):
            continue
        smaller = Program(rest, program.arguments)
        outcome = guarded(functools.partial(check, smaller))
        what = outcome if isinstance(outcome, str) else outcome.difference
        if what:
            program, difference = smaller, what
    return program, difference


# ---- running ------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run the batches, each in a process of its own; 0 when nothing differed."""
    parser = argparse.ArgumentParser(prog="python -m integration.fuzz operators", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(json.dumps(run_batch(options.one, options.count)))
        return 0
    rows = []
    for number in range(math.ceil(options.count / BATCH)):
        rows.append(_spawn(options.seed * 1000 + number, min(BATCH, options.count - number * BATCH)))
        print(_line(rows[-1]), flush=True)
    return _sum_up(rows)


def run_batch(batch: int, count: int) -> dict[str, Any]:
    """Run one batch in this process and return its row.

    Args:
        batch: Seed of the batch.
        count: Programs in it.
    """
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    differences: list[str] = []
    texts: set[str] = set()

    def one(program: Program) -> None:
        text = str(program)
        if not program.lines or text in texts or len(texts) >= count:
            return
        texts.add(text)
        outcome = guarded(lambda: check(program))
        if not isinstance(outcome, str):
            if outcome.refused:
                refused[outcome.refused] += 1
            else:
                sums.update({n: getattr(outcome.stats, n) for n in _COUNTED})
            outcome = outcome.difference
        if outcome:
            smaller, difference = _reduced(program, outcome)
            differences.append(f"{difference[:400]}\n{smaller}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = run_examples(programs(), one, count, batch)
    return {"batch": batch, "programs": len(texts), "seconds": seconds, "differences": differences,
            "refused": dict(refused), "sums": dict(sums)}  # fmt: skip


def _spawn(batch: int, count: int) -> dict[str, Any]:
    return {"batch": batch, **spawn(["operators", "--one", str(batch), "--count", str(count)])}


def _line(row: dict[str, Any]) -> str:
    head = f"batch {row['batch']} {row['programs']} programs in {row['seconds']} s, refused {row.get('refused')}"
    return "\n  ".join([head, *row["differences"]])


def _sum_up(rows: list[dict[str, Any]]) -> int:
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for row in rows:
        sums.update(row.get("sums", {}))
        refused.update(row.get("refused", {}))
    differences = sum(len(row["differences"]) for row in rows)
    print(f"programs {sum(row['programs'] for row in rows)}; differences {differences}")
    print("counters: " + ", ".join(f"{name} {value}" for name, value in sorted(sums.items())))
    print(f"programs refused, by the code of the refusal: {dict(refused)}")
    return 1 if differences or not sums["kernels_generated"] or sums["fallbacks"] else 0
