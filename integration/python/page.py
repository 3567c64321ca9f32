"""Write `docs/python-corpus.md`: the totals of every tool, and each program with its verdicts."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path

import torch

import intarsia
from integration.python.items import ITEMS
from integration.python.peers import Found, table
from integration.python.programs import PROGRAMS

__all__ = ["page"]

SIGNS = {"works": "works", "wrong": "**wrong**", "refuses": "–"}
HEAD = """# What capture takes: the corpus of Python programs

`integration/python/` holds small programs, one idea each, as people write them. Each belongs to an entry of the list of
what must work; every entry has at least two. A program is called twice, with new values, by eager and by a tool, and
everything that can be seen is compared: results (values, dtype, shape, strides, `requires_grad`, what shares memory),
arguments, attributes, cells and globals afterwards, what is printed, what is raised, how far the random generator went.

- *works*: equal to eager both times, captured in one piece;
- *wrong*: the tool took the program, and something differs;
- *refuses* (–): it raised an error of its own, crashed, or took longer than a minute and a half.

The compilers run with `fullgraph=True`, `torch.compile` with `backend="eager"`, ours with its default backend. The
three tracers take only tensors, so the other arguments are bound beforehand; `torch.jit.script` is given the programs
as they are, most of which have no annotations. What breaks on purpose (`print`, a branch on a tensor) is refused by
both compilers here; outside of this count it runs in pieces.

Programs were written before anybody knew what a tool does with them, and none is left out because ours refuses it. But
the faults of ours that they showed were mended since, so the totals favour ours: at the first count, on 2026-11-28 with
228 programs, ours took 187 and `torch.compile` 191. Of 173 that were added on 2026-11-30 ours took 126 at their first
count, with 2 wrong, and `torch.compile` 119, with 5 wrong. One program, `shuffled_by_a_seed`, was written along with
what it shows, and so were 44 later on 2026-11-30: of the 437 before them ours takes 393 (e5f4b412) and `torch.compile`
322, of the 44 ours 42 and `torch.compile` 3.

A run that is stopped goes on where it was, and several may share a file of verdicts: name the programs of each.

"""


def page(found: Found) -> str:
    """Return the page for verdicts by tool and program."""
    machine = f"{cpu()}, {os.cpu_count()} cores"
    versions = f"CPython {platform.python_version()}, torch {torch.__version__}, intarsia {intarsia.__version__}"
    command = "python -m integration.python.peers --fresh --write docs/python-corpus.md"
    parts = [HEAD, f"{datetime.date.today():%Y-%m-%d}, {machine}, {versions}; {len(PROGRAMS)} programs.\n"]
    parts += [f"Command: `{command}`\n\n", table(found), "\n"]
    for group, items in ITEMS.items():
        parts += [f"\n## {group.capitalize()}\n\n", programs(found, items)]
    return "".join(parts)


def programs(found: Found, items: tuple[str, ...]) -> str:
    """Return one row for each program of a group."""
    tools = list(found)
    lines = [f"| item | program | {' | '.join(tools)} |", "| --- " * (len(tools) + 2) + "|"]
    for item in items:
        for name, program in PROGRAMS.items():
            if program.item == item:
                verdicts = [found[tool].get(name, {"verdict": ""})["verdict"] for tool in tools]
                lines.append(f"| {item} | `{name}` | {' | '.join(SIGNS.get(v, '') for v in verdicts)} |")
    return "\n".join(lines) + "\n"


def cpu() -> str:
    """Return the processor's name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or sys.platform
