"""Everything but the tensors imports no torch."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import intarsia_tracer


def test_the_core_imports_no_torch():
    found = [module.name for module in pkgutil.walk_packages(intarsia_tracer.__path__, "intarsia_tracer.")]
    core = [name for name in found if not name.startswith("intarsia_tracer.tensors")]
    assert len(core) > 50
    code = f"import sys, {', '.join(core)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
