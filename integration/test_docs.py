"""What the docs show runs: the README's blocks each alone, the pipeline in miniature; texts of programs read back."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from intarsia_loops import kernels, loops, tiles

ROOT = Path(__file__).resolve().parent.parent
TEXT = re.compile(r"```text\n(// dialect: (\w+) \d+\n.*?)```", re.DOTALL)


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_block_of_the_readme_runs_alone():
    n_blocks = (ROOT / "README.md").read_text(encoding="utf-8").count("```python")
    assert f"README.md: {n_blocks} example(s) ran" in run("tools/readme_example.py", "--apart", "README.md")


def test_a_block_that_needs_another_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n```python\nprint(x)\n```\n", encoding="utf-8")
    together = subprocess.run([sys.executable, "tools/readme_example.py", str(page)], cwd=ROOT, check=False)
    apart = subprocess.run([sys.executable, "tools/readme_example.py", "--apart", str(page)], cwd=ROOT, check=False)
    assert (together.returncode, apart.returncode) == (0, 1)


def test_the_pipeline_in_miniature_runs():
    said = run("docs/from_scratch.py")
    assert "compiled again: it is no longer so that x is f32[4, 8]" in said and "print isn't an operation" in said
    assert 300 <= len((ROOT / "docs" / "from_scratch.py").read_text(encoding="utf-8").splitlines()) <= 360


def test_programs_in_pages_read_back():
    dialects = {"loops": loops, "kernels": kernels, "tiles": tiles}
    found = [match for path in sorted(ROOT.glob("docs/*.md")) for match in TEXT.finditer(path.read_text("utf-8"))]
    assert {name for _, name in (match.groups() for match in found)} == dialects.keys()
    for match in found:
        text, name = match.groups()
        assert dialects[name].print_ir(dialects[name].parse_ir(text)) == text
