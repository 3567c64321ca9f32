"""Imports are read from the text, and circles found."""

import sys
import types

from intarsia_testkit.import_graph import circle_in, import_graph


def package(folder, **texts):
    for name, text in texts.items():
        path = folder / "p" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    made = types.ModuleType("p")
    made.__file__ = str(folder / "p" / "__init__.py")
    return made


def test_imports_of_all_forms(tmp_path):
    texts = {
        "__init__": "from p.a import x",
        "a": "import sys\nfrom p import b\nimport p.c",
        "b": "def f():\n    from p.c import y",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.d import z",
        "d": "from p import b",
    }
    graph = import_graph(package(tmp_path, **texts))
    assert graph == {"p": {"p.a"}, "p.a": {"p.b", "p.c"}, "p.b": {"p.c"}, "p.c": {"p.d"}, "p.d": {"p.b"}}
    assert set(circle_in(graph)) == {"p.b", "p.c", "p.d"}
    assert "p" not in sys.modules  # nothing is run


def test_no_circle(tmp_path):
    assert circle_in(import_graph(package(tmp_path, __init__="", a="from p import b", b="import os"))) == []
