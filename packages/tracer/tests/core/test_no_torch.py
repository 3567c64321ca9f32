"""The decoder, the evaluator and the assembler import no torch."""

from __future__ import annotations

import subprocess
import sys

MODULES = "assemble breaks builtin_calls capture codegen evaluate extension lookup opcodes tracer wrapping"


def test_the_core_imports_no_torch():
    names = ", ".join(f"intarsia_tracer.{name}" for name in MODULES.split())
    code = f"import sys, intarsia_tracer, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
