"""Dumps: a file for each stage and graph, with the value that the stage gave; one line where it changed nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.launches import Launches
from intarsia_loops.level_text import constants_of, print_value
from intarsia_loops.levels import Emitted, Launched
from intarsia_runtime.linked import Linked

__all__ = ["Dumps", "make_dump_folder"]


def make_dump_folder(folder: str | os.PathLike[str] | None) -> None:
    """Make the folder that an option names for dumps; None: none is asked for.

    Raises:
        InvalidArgumentError: `options.value`: it can't be made.
    """
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"option dump_dir can't be used: {error}", code="options.value") from error


class Dumps:
    """Writes the values of one program into a folder, made when there is something to write.

    Args:
        folder: Where.
        meaning: `(plan, launches)` -> the text of what launches that were made by a plan mean.
    """

    def __init__(self, folder: Path, meaning: Callable[[Any, Launches], str]) -> None:
        self._folder, self._meaning = folder, meaning
        self._n_stages = 0
        self._last: dict[int, tuple[str, str]] = {}  # number of a graph -> the file that its text is in, and the text

    def write(self, stage: str, graphs: tuple[Any, ...], plans: tuple[Any, ...]) -> None:
        """Write what a stage gave, and what it decided."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, graph in enumerate(graphs):
            name = f"{self._n_stages:02d}_{stage}{f'_backward{number}' * (number > 0)}"
            plan = plans[number] if number < len(plans) else None
            if plan is not None:
                (self._folder / f"{name}.plan.json").write_text(plan.to_json(), encoding="utf-8")
            if isinstance(graph, Emitted):
                (self._folder / f"{name}.{graph.source.language}").write_text(graph.source.text, encoding="utf-8")
            if isinstance(graph, Launched) and plan is not None:
                tiles = self._meaning(plan, graph.launches)
                (self._folder / f"{name}.tiles").write_text(tiles, encoding="utf-8")
            if not isinstance(graph, Linked):
                self._write_text(number, name, print_value(graph))
                named = constants_of(graph).items()
                if tensors := {key: _saved(value) for key, value in named if isinstance(value, torch.Tensor)}:
                    torch.save(tensors, self._folder / f"{name}.pt")
        self._n_stages += 1

    def _write_text(self, number: int, name: str, text: str) -> None:
        file = f"{name}.ir"
        before, last = self._last.get(number, ("", ""))
        self._last[number] = (before or file, text) if text == last else (file, text)
        shown = f"// unchanged since {before}\n" if text == last else text
        (self._folder / file).write_text(shown, encoding="utf-8")


def _saved(value: torch.Tensor) -> torch.Tensor:
    """Return what a file can hold: what takes packed weights takes those that aren't, too."""
    return value.to_dense() if value.is_mkldnn else value
