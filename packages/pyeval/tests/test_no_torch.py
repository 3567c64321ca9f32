"""No module of the package imports torch."""

from __future__ import annotations

import pathlib
import pkgutil
import re
import subprocess
import sys
import tomllib

import intarsia_pyeval


def test_the_package_imports_no_torch():
    found = [module.name for module in pkgutil.walk_packages(intarsia_pyeval.__path__, "intarsia_pyeval.")]
    assert len(found) > 50
    code = f"import sys, {', '.join(found)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_nothing_that_it_depends_on_installs_torch():
    packages = pathlib.Path(__file__).parents[2]
    projects = [tomllib.loads(path.read_text(encoding="utf-8")) for path in packages.glob("*/pyproject.toml")]
    needs = {found["project"]["name"]: found["project"].get("dependencies", []) for found in projects}
    todo, seen = ["intarsia-pyeval"], set()
    while todo:
        name = re.match(r"[\w-]+", todo.pop())[0]
        if name not in seen:
            seen.add(name)
            todo += needs.get(name, [])
    assert {"intarsia-ir", "intarsia-bytecode"} <= seen
    assert "torch" not in seen
    assert any("torch" in requirement for requirement in needs["intarsia-tensorcapture"][-1:])
