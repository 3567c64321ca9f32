"""No module of the package imports torch."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import intarsia_pyeval


def test_the_package_imports_no_torch():
    found = [module.name for module in pkgutil.walk_packages(intarsia_pyeval.__path__, "intarsia_pyeval.")]
    assert len(found) > 50
    code = f"import sys, {', '.join(found)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
