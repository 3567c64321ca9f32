"""The command line: each command is a function of a module of its own; here they get their names."""

from __future__ import annotations

from typing import Annotated

import typer

from intarsia_command import bench, bisect, caches, debugging, doctor, explaining, exporting, opt
from intarsia_command.exits import command

__all__ = ["app", "main"]

EPILOG = "Exit codes: 0 fine; 1 something was found; 2 usage; 3 can't be compiled; 4 a fault of intarsia; 5 the script."

app = typer.Typer(
    name="intarsia",
    help="Compile, explain and bisect programs of PyTorch, and try passes of Intarsia on text.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cache = typer.Typer(help="Look at the folder that compiled kernels are kept in.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the versions.")] = False) -> None:
    if version:
        print(doctor.versions_line())
        raise typer.Exit


app.command("opt")(command(opt.opt))
app.command("explain")(command(explaining.explain))
app.command("run")(command(explaining.run))
app.command("export")(command(exporting.export))
app.command("bench")(command(bench.bench))
app.command("bisect")(command(bisect.bisect))
app.command("debug")(command(debugging.debug_command))
app.command("doctor")(command(doctor.doctor))
cache.command("ls")(command(caches.ls))
cache.command("stat")(command(caches.stat))
cache.command("clear")(command(caches.clear))
cache.command("trim")(command(caches.trim))
cache.command("verify")(command(caches.verify))


def main() -> None:
    """Run the command with the arguments of the process; ends it."""
    app(prog_name="intarsia")
