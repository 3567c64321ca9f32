"""Every command but `opt` and `bisect`, as a process of its own: what it prints, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest


def test_help_names_every_command(intarsia):
    done = intarsia("--help")
    assert done.code == 0 and "Exit codes" in done.out
    assert all(name in done.out for name in ("opt", "explain", "run", "bench", "cache", "doctor"))
    assert intarsia("--version").out.startswith("intarsia 0.")
    assert intarsia("--help", module="intarsia_command").out == done.out


def test_without_the_package_python_m_intarsia_says_what_to_install(intarsia, tmp_path):
    # an import hook that hides typer from the process
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'typer' else find(n, *a)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = intarsia("doctor", PYTHONPATH=path)
    assert done.code == 2 and "the command needs typer: pip install intarsia-command" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("opts",), 2, "No such command"),
        (("explain",), 2, "Missing argument"),
        (("explain", "nothing.py::f"), 2, "there is no script 'nothing.py'"),
        (("explain", "nothing.py"), 2, "there is no script 'nothing.py'"),
        (("run", "script.py"), 2, "write script.py::function"),
        (("run", "script.py::twcie"), 2, "did you mean script.py::twice?"),
        (("run", "script.py::alone"), 2, "add a function `alone_inputs()`"),
        (("run", "script.py::f", "--backend", "cp"), 2, "did you mean 'cpp'"),
        (("bench", "script.py::f", "--rounds", "0"), 2, "--rounds must be at least 1"),
        (("run", "script.py::held"), 2, "is a tuple, not a function"),
        (("bench", "script.py::never"), 2, "are an empty list: no call"),
        (("export", "script.py::f", "f.safetensors", "--dim", "x=3"), 2, "--dim 'x=3' can't be read"),
        (("export", "script.py::f", "f.safetensors", "--dim", "z.0=n"), 2, "there is no argument 'z'"),
        (("run", "left.py::f"), 5, "left.py exited with 3"),
        (("explain", "script.py::broken"), 5, "ValueError: this is mine"),
    ],
)
def test_what_is_wrong_is_named(inside, arguments, code, said):
    done = inside(*arguments)
    assert (done.code, done.out) == (code, "") and said in done.err and "Traceback" not in done.err


def test_explain_tells_of_a_function(intarsia, tmp_path):
    done = intarsia("explain", "script.py::f", "--dump", tmp_path)
    assert done.code == 0 and "1 graph(s), 0 break(s)" in done.out and "(sin, mul, add, softmax)" in done.out
    assert list(tmp_path.glob("graph0_f/*_emit.cpp"))


def test_explain_writes_a_page_and_a_trace(intarsia, tmp_path):
    done = intarsia("explain", "script.py::twice", "--html", tmp_path / "out.html", "--trace", tmp_path / "out.json")
    assert done.code == 0 and done.out.count("graph(s)") == 3
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<h1>script.py::twice</h1>" in text and 'id="g1-k0"' in text and "x * 2.5" in text
    assert "is compiled again" in text
    events = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {"capture", "fuse", "build"} <= {event["name"] for event in events}


def test_a_page_that_cannot_be_written_is_told(inside, tmp_path):
    done = inside("explain", "script.py::f", "--html", tmp_path / "none" / "out.html")
    assert done.code == 2 and "can't be written" in done.err


def test_explain_tells_of_each_call(intarsia):
    done = intarsia("explain", "script.py::twice")
    assert done.code == 0 and done.out.count("graph(s)") == 3 and "is compiled again" in done.out


def test_explain_runs_a_script(intarsia):
    done = intarsia("explain", "script.py")
    assert done.code == 0 and done.out.startswith("printed by the script "), "although it ends by sys.exit()"
    assert "frame f at " in done.out and "frame Linear.forward at " in done.out


def test_run_compares_with_eager(intarsia):
    done = intarsia("run", "script.py::layer", "--train")
    assert done.code == 0 and done.out.endswith("equal to eager\n") and done.out.startswith("1 graph(s)")
    done = intarsia("run", "script.py::wrong")
    assert done.code == 1 and "call 0: result (the one): Tensor-likes are not close!" in done.out
    assert "intarsia bisect script.py::wrong" in done.err
    done = intarsia("run", "script.py::broken")
    assert done.out.endswith("equal to eager\n") and "call 0 raises ValueError: this is mine, in eager, too" in done.err


def test_export_writes_a_file_that_is_compared_with_eager(intarsia, tmp_path):
    done = intarsia(
        "export", "script.py::f", str(tmp_path / "f.safetensors"), "--dim", "x.0=n:1:64", "--dim", "y.0=n:1:64"
    )
    assert done.code == 0 and "2 variant(s), its results are those of eager" in done.out
    assert (tmp_path / "f.safetensors").stat().st_size > 1000


def test_bench_times_both(intarsia):
    done = intarsia("bench", "script.py::f", "--rounds", "2")
    assert done.code == 0 and "eager" in done.out and "median (ms)" in done.out


def test_the_cache_is_listed_checked_and_cleared(intarsia, inside, tmp_path):
    folder = tmp_path / "kept"
    assert inside("cache", "stat", "--dir", folder).out.endswith("0 entries, 0.0 MiB\n") and not folder.exists()
    assert intarsia("run", "script.py::twice", INTARSIA_CACHE_DIR=str(folder)).code == 0
    listed = intarsia("cache", "ls", "--dir", folder)
    keys = [word for word in listed.out.split() if len(word) == 64]
    assert listed.code == 0 and keys and f"{len(keys)} entries" in inside("cache", "stat", "--dir", folder).out
    assert inside("cache", "verify", "--dir", folder).code == 0
    assert "MiB are left" in inside("cache", "trim", "100", "--dir", folder).out
    assert inside("cache", "verify", "--dir", folder).out == f"{len(keys)} of {len(keys)} entries are intact\n"
    entry = folder / "v2" / keys[0][:2] / keys[0]
    entry.write_bytes(entry.read_bytes()[:-1])
    done = inside("cache", "verify", "--dir", folder)
    assert done.code == 1 and f"damaged: {entry}" in done.out
    assert inside("cache", "verify", "--dir", folder, "--remove").code == 0 and not entry.exists()
    entry.mkdir()
    assert inside("cache", "verify", "--dir", folder).code == 1
    assert inside("cache", "verify", "--dir", folder, "--remove").code == 0
    assert intarsia("run", "script.py::twice", INTARSIA_CACHE_DIR=str(folder)).code == 0
    assert inside("cache", "trim", "0", "--dir", folder).out.endswith(" 0.0 MiB are left\n") and not entry.exists()
    assert inside("cache", "clear", "--dir", folder, stdin="n\n").code == 0 and (folder / "v2").exists()
    assert inside("cache", "clear", "--dir", folder, "--yes").code == 0 and not (folder / "v2").exists()


def test_doctor_finds_what_is_missing(intarsia, tmp_path):
    done = intarsia("doctor", "--json")
    found = {f["what"]: f for f in json.loads(done.out)}
    assert found["compile"]["state"] == found["OpenMP"]["state"] == found["cache"]["state"] == "fine" and done.code == 0
    assert "INTARSIA_CALIBRATION=0" in found["calibration"]["detail"]
    done = intarsia("doctor", "--json", INTARSIA_CALIBRATION="", INTARSIA_CACHE_DIR=str(tmp_path))
    found = {f["what"]: f for f in json.loads(done.out)}
    assert "none for cpu" in found["calibration"]["detail"] and "calibrate" in found["calibration"]["remedy"]
    assert "OpenMP" in intarsia("doctor").out
    bare = tmp_path / "bin"
    bare.mkdir()
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = intarsia("doctor", "--json", PATH=str(bare), INTARSIA_CACHE_DIR=str(blocked))
    found = {f["what"]: f for f in json.loads(done.out)}
    assert done.code == 1 and found["C++ compiler"]["state"] == "missing"
    assert "install g++" in found["C++ compiler"]["remedy"]
    assert "is no directory" in found["cache"]["detail"] and "INTARSIA_CACHE_DIR" in found["cache"]["remedy"]


def test_doctor_names_a_compiler_that_does_not_work(intarsia, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "g++").write_text(f"#!{shutil.which('sh')}\nexit 7\n")
    (folder / "g++").chmod(0o755)
    found = {f["what"]: f for f in json.loads(intarsia("doctor", "--json", PATH=str(folder)).out)}
    assert found["OpenMP"]["state"] == "missing" and "exit status 7" in found["OpenMP"]["detail"]
    assert Path(found["C++ compiler"]["detail"]) == folder / "g++"
