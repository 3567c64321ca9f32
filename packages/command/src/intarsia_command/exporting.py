"""`intarsia export`: a function of a script as a file that another process loads and runs without the compiler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

import intarsia
import intarsia_export
from intarsia_command.exits import Exit, of_the_program
from intarsia_command.explaining import Target
from intarsia_command.programs import load
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["dims_of", "export"]

_DIM = re.compile(r"(?P<place>[A-Za-z_]\w*)\.(?P<dim>\d+)=(?P<name>[A-Za-z_]\w*)(:(?P<low>\d+))?(:(?P<high>\d+))?")


def export(
    target: Target,
    output: Annotated[Path, typer.Argument(help="The file to write.")],
    dim: Annotated[
        list[str] | None,
        typer.Option(help="A size that varies: ARGUMENT.DIMENSION=NAME, then :MIN and :MAX, as in x.0=batch:1:256."),
    ] = None,
) -> Exit:
    """Export a function, for arguments like those of its first call, and compare what is loaded with eager."""
    shapes = dims_of(dim or [])
    program = load(target)
    args, kwargs = program.calls()[0]
    intarsia.export(program.fresh_function(), args, kwargs, dynamic_shapes=shapes).save(output)
    loaded, console = intarsia_export.load(output), Console(soft_wrap=True)
    eager = program.fresh_function()
    (args, kwargs), (same_args, same_kwargs) = program.calls()[0], program.calls()[0]
    with torch.no_grad():
        torch.manual_seed(0)
        with of_the_program(target):
            expected = eager(*args, **kwargs)
        torch.manual_seed(0)
        found = loaded(*same_args, **same_kwargs)
    try:
        torch.testing.assert_close(found, expected)
    except AssertionError as error:
        console.print(f"{output} gives other results than eager: {error}")
        return Exit.FOUND
    variants = len(loaded.artefact.variants)
    console.print(
        f"{output}: {output.stat().st_size / 1e6:.1f} MB, {variants} variant(s), its results are those of eager"
    )
    return Exit.FINE


def dims_of(texts: list[str]) -> dict[str, dict[int, Any]] | None:
    """Return `dynamic_shapes` for the options of the command.

    Raises:
        InvalidArgumentError: `command.dim`: one can't be read.

    Example:
        >>> dims_of(["x.0=batch:2:8", "y.1=batch:2:8"])
        {'x': {0: Dim(name='batch', min=2, max=8)}, 'y': {1: Dim(name='batch', min=2, max=8)}}
    """
    found: dict[str, dict[int, Any]] = {}
    for text in texts:
        match = _DIM.fullmatch(text)
        if match is None:
            raise InvalidArgumentError(
                f"--dim {text!r} can't be read", code="command.dim", hints=("write it as x.0=batch:1:256",)
            )
        low, high = int(match["low"] or 1), int(match["high"]) if match["high"] else None
        found.setdefault(match["place"], {})[int(match["dim"])] = intarsia.Dim(match["name"], low, high)
    return found or None
