"""`intarsia opt`: the text of a value in, named passes, text out."""

from __future__ import annotations

import functools
import pickle
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import intarsia
import intarsia_ir.aten
import intarsia_runtime
from intarsia.levels import Functional, Half, Kernels, Linked, Loops, Partition, verify
from intarsia_command.exits import Exit
from intarsia_ir.choices import suggestion
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.pipeline import Stage, level_of
from intarsia_ir.records import Fresh, InputSpec, Signature
from intarsia_loops import Contract, kernels, loops
from intarsia_loops.level_text import constants_of, parse_value, print_value
from intarsia_recorder import EagerMode
from intarsia_shapes import thawed

__all__ = ["apply_passes", "opt"]

STDIN = "-"


def opt(
    file: Annotated[str, typer.Argument(help="A dump (.ir), or - for the standard input.")] = STDIN,
    passes: Annotated[list[str] | None, typer.Option("--pass", "-p", help="A pass to apply; may be repeated.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; else to stdout.")] = None,
    verify_each: Annotated[bool, typer.Option("--verify-each", help="Verify before and after each pass.")] = False,
    time_passes: Annotated[bool, typer.Option("--time-passes", help="Print how long each pass took.")] = False,
    print_after: Annotated[list[str] | None, typer.Option(help="Print the value after this pass, or `all`.")] = None,
    fuel: Annotated[
        list[str] | None, typer.Option(help="PASS=N: at most N rewrites of a pass; N: of the last.")
    ] = None,
    constants: Annotated[Path | None, typer.Option(help="Tensors that the text names; else FILE with .pt.")] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes, and what they take and give.")] = False,
) -> Exit:
    """Apply passes to the text of a program.

    Texts are what `options={"dump_dir": ...}` writes, or a graph of ATen, loops or kernels alone, which then has inputs
    and results but no story of where they come from. With no pass at all, a text is read and written again.
    """
    if list_passes:
        for stage in intarsia.default_pipeline().stages:
            counts = "  (takes fuel)" if stage.counts else ""
            print(f"{stage.name}: {level_of(stage.takes).__name__} -> {level_of(stage.gives).__name__}{counts}")
        return Exit.FINE
    text, known = _read(file), _constants(file, constants)
    value = _value(text, known, passes or [])
    stages = _stages(passes or [], _fuel(fuel or [], passes or []))
    wanted = set(print_after or ())
    _check_known("pass to print after", wanted - {"all"}, [stage.name for stage in stages])

    def note(stage: Stage, made: Any, seconds: float) -> None:
        if time_passes:
            print(f"{stage.name}: {1e3 * seconds:.1f} ms", file=sys.stderr)
        if wanted & {stage.name, "all"}:
            print(f"// after {stage.name}\n{print_value(made)}", file=sys.stderr, end="")

    value = apply_passes(value, stages, note, verify_each=verify_each)
    _write(value, output)
    return Exit.FINE


def _value(text: str, constants: dict[str, Any], passes: Sequence[str]) -> Any:
    """Return the value of a text; a graph alone is of the level that the first pass takes."""
    alone = re.match(r"// dialect: (\w+) ", text)
    if alone is None:
        return parse_value(text, constants=constants, thaw=functools.partial(thawed, kind=EagerMode))
    if alone[1] == "aten":
        gm = intarsia_ir.aten.parse_ir(text, constants=constants)
        outputs = tuple(Fresh(number) for number in range(len(gm.graph.output_node().args[0])))  # type: ignore[arg-type]
        signature = Signature(tuple(InputSpec(n.name) for n in gm.graph.find_nodes(op="placeholder")), outputs)
        lowers = bool(passes) and passes[0] == "lower"
        return (Half if lowers else Functional)(gm, signature)
    dialects = {"loops": (loops, Loops), "kernels": (kernels, Kernels)}
    if alone[1] not in dialects:
        raise InvalidArgumentError(
            f"a graph of dialect {alone[1]!r} alone isn't read",
            code="command.level",
            hints=("give all of its value, which begins with `// level: ...`: dumps have it",),
        )
    dialect, level = dialects[alone[1]]
    target = intarsia_runtime.detect_target()
    return level(dialect.parse_ir(text, constants=constants), Contract(Signature(), (), target, torch.device("cpu")))


def apply_passes(
    value: Any,
    stages: Sequence[Stage],
    note: Callable[[Stage, Any, float], None] | None = None,
    *,
    verify_each: bool = False,
) -> Any:
    """Return what stages make of a value.

    Args:
        value: Of any level, or a partition.
        stages: In order.
        note: Told of each stage, what it gave, and in how many seconds.
        verify_each: Verify the value before the first stage and after each, which must leave its input as it was.

    Raises:
        InvalidArgumentError: `command.level`: a stage takes another level.
        VerifyError: A graph breaks the rules of its dialect (with `verify_each`).
    """
    if verify_each:
        for graph in value.graphs if isinstance(value, Partition) else (value,):
            verify(graph)
    for stage in stages:
        _check_level(value, stage)
        start = time.perf_counter()
        value, _ = stage.checked(value, verify) if verify_each else stage(value)
        if note is not None:
            note(stage, value, time.perf_counter() - start)
    return value


def _check_level(value: Any, stage: Stage) -> None:
    graph = value.forward if isinstance(value, Partition) else value
    if isinstance(graph, level_of(stage.takes)):
        return
    given, wanted = type(graph).__name__, level_of(stage.takes).__name__
    between = [s.name for s in intarsia.default_pipeline().stages]
    raise InvalidArgumentError(
        f"pass {stage.name!r} takes {wanted}, but here the program is {given}",
        code="command.level",
        hints=(f"the order is {', '.join(between)}; --list says what each takes and gives",),
    )


def _stages(names: Sequence[str], fuel: dict[str, int]) -> list[Stage]:
    pipeline = intarsia.default_pipeline()
    stages = {stage.name: stage for stage in pipeline.limit(fuel).stages}
    _check_known("pass", names, stages)
    last = [name for name in names if stages[name].gives is Linked]
    if last:
        before = pipeline.stages[pipeline.index(last[0]) - 1].name
        raise InvalidArgumentError(
            f"what pass {last[0]!r} gives has no text", code="command.pass", hints=(f"{before!r} is the last with one",)
        )
    return [stages[name] for name in names]


def _check_known(what: str, names: Any, known: Any) -> None:
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise InvalidArgumentError(
                f"no {what} is called {name!r}{suggestion(name, known)}",
                code="command.pass",
                hints=(f"there are {listed}",),
            )


def _fuel(given: Sequence[str], passes: Sequence[str]) -> dict[str, int]:
    found = dict[str, int]()
    for text in given:
        name, _, count = text.rpartition("=")
        if not count.isdecimal() or not (name or passes):
            raise InvalidArgumentError(
                f"--fuel {text!r} isn't PASS=N",
                code="command.fuel",
                hints=("write for example --fuel fold_constants=3",),
            )
        found[name or passes[-1]] = int(count)
    return found


def _read(file: str) -> str:
    if file == STDIN:
        return sys.stdin.read()
    try:
        text = Path(file).read_text(encoding="utf-8")
        same = re.fullmatch(r"// unchanged since (\S+)\n", text)
        return text if same is None else Path(file).with_name(same[1]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{file!r} can't be read: {error}", code="command.file") from error


def _constants(file: str, given: Path | None) -> dict[str, Any]:
    """Return the tensors that a text names: of a file that is given, or of the one beside the text."""
    path = given or Path(file).with_suffix(".pt")
    if given is None and (file == STDIN or not path.exists()):
        return {}
    try:
        return dict(torch.load(path, weights_only=True))
    except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        raise InvalidArgumentError(f"{str(path)!r} has no tensors: {error}", code="command.file") from error


def _write(value: Any, output: Path | None) -> None:
    text, named = print_value(value), constants_of(value)
    tensors = {name: tensor for name, tensor in named.items() if isinstance(tensor, torch.Tensor)}
    if output is None:
        sys.stdout.write(text)
        if tensors:
            print(
                f"intarsia: the text names the tensors {', '.join(tensors)}; -o keeps them beside it", file=sys.stderr
            )
        return
    try:
        output.write_text(text, encoding="utf-8")
        if tensors:
            torch.save(tensors, output.with_suffix(".pt"))
    except OSError as error:
        raise InvalidArgumentError(f"{str(output)!r} can't be written: {error}", code="command.file") from error
