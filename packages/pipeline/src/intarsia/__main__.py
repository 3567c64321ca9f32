"""`python -m intarsia`: the `intarsia` command, which is a package of its own."""

import importlib.util
import runpy
import sys

NEEDED = {"intarsia_command": "intarsia-command", "rich": "rich", "typer": "typer"}

missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
if missing:
    print(f"intarsia: the command needs {', '.join(missing)}: pip install intarsia-command", file=sys.stderr)
    raise SystemExit(2)
runpy.run_module("intarsia_command", run_name="__main__")
