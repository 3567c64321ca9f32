"""An import between packages that no list names is found, and so is a line of a list that nobody needs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import surface

from intarsia_ir import codes

LOWER = {
    "__init__": '__all__ = ["top"]\ntop = 1\n',
    "index": '__all__ = ["lift"]\nlift = hidden = 1\n',
    "_own": "x = 1\n",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(surface, "ROOT", tmp_path)

    def write(user, listed=""):
        for package, files in {"loops": LOWER, "fuser": {"__init__": user}}.items():
            folder = tmp_path / "packages" / package
            (folder / "tests").mkdir(parents=True, exist_ok=True)
            source = folder / "src" / f"intarsia_{package}"
            source.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (source / f"{name}.py").write_text(text)
        (tmp_path / "packages/loops/tests/siblings.txt").write_text(listed)
        return [finding.split(": ", 1)[1] for finding in surface.findings()]

    return write


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("from intarsia_loops import top", []),
        ("import intarsia_loops\nintarsia_loops.top", []),
        ("from intarsia_loops.index import lift", ["intarsia_loops.index.lift isn't listed"]),
        ("from intarsia_loops import index\nindex.lift", ["intarsia_loops.index.lift isn't listed"]),
        ("import intarsia_loops\nintarsia_loops.index.lift", ["intarsia_loops.index.lift isn't listed"]),
        ("import intarsia_loops.index as i\ni.lift", ["intarsia_loops.index.lift isn't listed"]),
        ("def f():\n    from intarsia_loops.index import lift", ["intarsia_loops.index.lift isn't listed"]),
        ("from intarsia_loops.index import hidden", ["intarsia_loops.index.hidden isn't in __all__ of its module"]),
        ("from intarsia_loops._own import x", ["intarsia_loops._own.x is private to intarsia_loops"]),
    ],
)
def test_what_is_not_listed_is_found(tree, user, found):
    assert [text.split(";")[0] for text in tree(user)] == found


def test_lists_are_exact(tree):
    user = "from intarsia_loops.index import lift\n"
    assert tree(user, "intarsia_loops.index.lift\n") == []
    assert tree("", "intarsia_loops.index.lift\n") == ["nobody imports intarsia_loops.index.lift"]
    tree(user)
    surface.write()
    assert list(surface.findings()) == []


def test_codes_that_are_asked_for_are_raised():
    page = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [code for name in codes.__all__ if f"| `{(code := getattr(codes, name))}` |" not in page] == []
