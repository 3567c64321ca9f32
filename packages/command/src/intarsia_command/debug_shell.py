"""The shell of `intarsia debug`: told of each step, it stops where it was asked to and reads commands there."""

from __future__ import annotations

import cmd
import linecache
import os
from collections.abc import Sequence
from typing import Any, TextIO

import torch

from intarsia_ir.origin_text import lines_in_full
from intarsia_ir.records import Origin
from intarsia_ir.stepping import Step

__all__ = ["Left", "Shell", "summary"]

AROUND = 12  # lines of a program that `list` shows
MOST = 40  # lines of a step's text, and values, that are shown at once


class Left(BaseException):
    """The shell was left in the middle of a program; no `except Exception` of that program may keep it."""


class Shell(cmd.Cmd):
    """Stops before a graph, at steps and at breakpoints, and reads commands there.

    Args:
        stdin: Where commands are read; at its end the program runs on.
        stdout: Where it writes.
        commands: Done before any is read.
    """

    prompt = "(intarsia) "

    def __init__(self, stdin: TextIO, stdout: TextIO, commands: Sequence[str] = ()) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin.isatty()
        self.cmdqueue = list(commands)
        self._breaks: list[str] = []
        self._left = 1  # steps to go; 0: on to a breakpoint
        self._only_items = False
        self._program: list[str] = []
        self._step: Step | None = None
        self._known: dict[str, Any] = {}

    def begins(self, what: str, program: str, inputs: dict[str, Any]) -> None:
        """Stop before a graph.

        Args:
            what: Which one, of which level.
            program: Its text.
            inputs: Name -> value of what it is called with.
        """
        self._program, self._step, self._known = lines_in_full(program), None, dict(inputs)
        self._say(what)
        self._say_values(inputs)
        self.cmdloop()

    def step(self, step: Step) -> None:
        """Stop at a step, if that was asked for."""
        self._known = dict(step.known)
        is_break = any(_is_at(step, what) for what in self._breaks)
        if self._left and not (self._only_items and step.depth):
            self._left -= 1
            is_break = is_break or self._left == 0
        if not is_break:
            return
        self._step = step
        self._show(step)
        self.cmdloop()

    def ends(self, wrong: Sequence[str]) -> None:
        """Say what came out."""
        self._say("\n".join(wrong) or "the graph's end: equal to eager")

    # ---- commands: True leaves the loop, and the program goes on

    def do_step(self, argument: str) -> bool:
        """step [N]: go on, and stop N steps further on; statements of launches are steps, too."""
        return self._go(argument, only_items=False)

    def do_next(self, argument: str) -> bool:
        """next [N]: go on, and stop N items of the program further on: nodes, nests, kernels, launches."""
        return self._go(argument, only_items=True)

    def do_continue(self, argument: str) -> bool:
        """continue: go on to the next breakpoint, or to the end."""
        self._left = 0
        return True

    def do_break(self, argument: str) -> None:
        """break WHERE: stop at what makes %NAME, at what comes from FILE.py:LINE, or has a word in its text.

        break alone lists them.
        """
        if argument:
            self._breaks.append(argument)
        self._say("\n".join(f"{number} {what}" for number, what in enumerate(self._breaks, 1)) or "no breakpoint")

    def do_delete(self, argument: str) -> None:
        """delete [N]: forget a breakpoint, or all."""
        if argument and not (argument.isdigit() and 0 < int(argument) <= len(self._breaks)):
            self._say(f"there is no breakpoint {argument!r}")
            return
        self._breaks[:] = [] if not argument else [b for n, b in enumerate(self._breaks, 1) if n != int(argument)]

    def do_list(self, argument: str) -> None:
        """list [all]: the program around the step, or all of it."""
        mark = self._line()
        start = 0 if argument == "all" else max(0, mark - AROUND // 2)
        stop = len(self._program) if argument == "all" else start + AROUND
        lines = list(enumerate(self._program))[start:stop]
        self._say("\n".join(f"{'>' if number == mark else ' '} {line}" for number, line in lines))

    def do_where(self, argument: str) -> None:
        """where: the lines of yours that the step comes from."""
        origins = self._step.origins if self._step is not None else ()
        self._say("\n".join(map(_place, origins)) or "no line of yours")

    def do_values(self, argument: str) -> None:
        """values: all that has a value now."""
        self._say_values(self._known)

    def do_print(self, argument: str) -> None:
        """print EXPRESSION: a value by its name, or what Python makes of such values and of torch."""
        try:
            value = eval(argument.replace("%", ""), {"torch": torch}, dict(self._known))
        except Exception as error:
            self._say(f"{type(error).__name__}: {error}")
            return
        self._say(f"{summary(value)}\n{value}" if isinstance(value, torch.Tensor) else repr(value))

    def do_quit(self, argument: str) -> None:
        """quit: leave the program where it is."""
        raise Left

    do_s, do_n, do_c, do_b, do_d, do_l, do_w, do_v, do_p, do_q = (
        do_step, do_next, do_continue, do_break, do_delete, do_list, do_where, do_values, do_print, do_quit,
    )  # fmt: skip

    def do_EOF(self, argument: str) -> bool:  # noqa: N802  (the name that cmd gives it)
        """The end of the input: go on to the end."""
        self._breaks.clear()
        return self.do_continue("")

    def emptyline(self) -> bool:
        """Do what was done last again, as pdb does."""
        return self.onecmd(self.lastcmd) if self.lastcmd else False

    def default(self, line: str) -> None:
        """Say that there is no such command."""
        self._say(f"there is no command {line.split()[0]!r}; `help` lists them")

    # ---- what is shown

    def _go(self, argument: str, *, only_items: bool) -> bool:
        if argument and not (argument.isdigit() and int(argument) > 0):
            self._say(f"how many steps is {argument!r}?")
            return False
        self._left, self._only_items = int(argument or 1), only_items
        return True

    def _show(self, step: Step) -> None:
        lines = step.text.splitlines()
        self._say("\n".join([f"> {lines[0]}", *[f"  {line}" for line in lines[1:MOST]]]))
        if len(lines) > MOST:
            self._say(f"  and {len(lines) - MOST} more lines")
        self._say_values(step.made)

    def _say_values(self, values: Any) -> None:
        shown = list(values.items())
        lines = [f"  {name} = {summary(value)}" for name, value in shown[:MOST]]
        lines += [f"  and {len(shown) - MOST} more"] if len(shown) > MOST else []
        if lines:
            self._say("\n".join(lines))

    def _line(self) -> int:
        """Number of the step's line in the program; -1 before the first."""
        first = self._step.text.partition("\n")[0].strip() if self._step is not None else None
        return next((n for n, line in enumerate(self._program) if line.strip() == first), -1)

    def _say(self, text: str) -> None:
        self.stdout.write(f"{text}\n")


def summary(value: Any) -> str:
    """Return a value on one line: of a tensor its type, sizes and range.

    Example:
        >>> summary(torch.tensor([1.0, float("nan"), 3.0]))
        'float32[3], 1 to 3, 1 NaN'
        >>> summary(torch.tensor(7))
        'int64[] 7'
    """
    if not isinstance(value, torch.Tensor):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    kind = f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if value.layout is not torch.strided or value.numel() == 0:
        return kind
    plain = value.detach()
    if plain.numel() == 1:
        return f"{kind} {plain.item():.6g}" if plain.is_floating_point() else f"{kind} {plain.item()}"
    if plain.is_complex():
        return kind
    known = plain[~plain.isnan()] if plain.is_floating_point() else plain
    n_nan = plain.numel() - known.numel()
    span = f", {known.min().item():.6g} to {known.max().item():.6g}" if known.numel() else ""
    return f"{kind}{span}{f', {n_nan} NaN' if n_nan else ''}"


def _is_at(step: Step, what: str) -> bool:
    file, _, line = what.rpartition(":")
    if file and line.isdigit():
        return any(o.line == int(line) and o.file.endswith(file) for o in step.origins)
    name = what.removeprefix("%")
    return name in step.made if what.startswith("%") else name in step.made or what in step.text


def _place(origin: Origin) -> str:
    code = linecache.getline(origin.file, origin.line).strip()
    return f"  {os.path.basename(origin.file)}:{origin.line} in {origin.function}{f'  {code}' if code else ''}"
