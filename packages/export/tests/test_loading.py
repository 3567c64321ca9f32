"""A file is loaded where it fits, and refused where it doesn't, with what is wrong and what to do."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import artefacts
import pytest
import safetensors
import safetensors.torch
import torch

from intarsia_export import Artefact, MadeOn, load, program_of, read
from intarsia_export.loading import check_made_on
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return artefacts.artefact(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def path(made: Artefact, tmp_path: Path) -> Path:
    made.save(tmp_path / "f.safetensors")
    return tmp_path / "f.safetensors"


def test_a_loaded_program_computes(path: Path, made: Artefact) -> None:
    program, x = load(path), torch.ones(4, 3)
    result, size, same, weight, text = program(x)
    torch.testing.assert_close(result, torch.tensor([[2.0, 3.0, 4.0]] * 4))
    assert (size, text) == (8, "text")
    assert same is x
    assert weight is program.artefact.weights["weight"]
    assert repr(program) == "Program(f(x))"


def test_what_is_read_is_what_was_written(path: Path, made: Artefact) -> None:
    again = read(path)
    assert dataclasses.replace(again, weights={}) == dataclasses.replace(made, weights={})
    torch.testing.assert_close(again.weights, dict(made.weights))


def test_a_process_that_loads_has_no_tracer_and_starts_no_compiler(path: Path) -> None:
    code = f"""
import subprocess, sys
import torch  # which may ask the loader for libraries
def refuse(*args, **kwargs): raise AssertionError(args)
subprocess.Popen.__init__ = refuse
import intarsia_export
print(intarsia_export.load({str(path)!r})(torch.ones(2, 3))[1])
named = ("tensorcapture", "pyeval", "bytecode", "framehook", "recorder", "fuser", "scheduler", "cpp", "shapes")
assert "sympy" not in sys.modules  # half a second of every start, and nobody computes with sizes there
assert not [n for n in named if "intarsia_" + n in sys.modules] and "intarsia" not in sys.modules
assert "pickle" not in open({str(path)!r}, "rb").read().decode("latin-1")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.ones(9, 3), "dimension 0 of x is 9, outside of [2, 8], the bounds of 'batch'"),
        (torch.ones(1, 3), "dimension 0 of x is 1"),
        (torch.ones(4, 4), "x was shape (None, 3)"),
        (torch.ones(4, 3, dtype=torch.float64), "x was dtype torch.float32, now it is dtype torch.float64"),
        (3, "x is a int, and it was a torch.Tensor"),
        (torch.ones(4, 3, requires_grad=True), "x was requires_grad False"),
        (torch._neg_view(torch.ones(4, 3)), "x is lazily conjugated or negated"),
    ],
)
def test_a_call_that_it_is_not_for(path: Path, x: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(path)(x)
    assert caught.value.code == "export.call"
    assert said in str(caught.value)


def test_the_line_that_relied_on_it_is_in_the_message(path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(path)(torch.ones(4, 4))
    assert caught.value.where == (artefacts.LINE,)


# ---- what doesn't fit ------------------------------------------------------------------------------------------


def changed(made: Artefact, **made_on: Any) -> Artefact:
    return dataclasses.replace(made, made_on=dataclasses.replace(made.made_on, **made_on))


@pytest.mark.parametrize(
    ("made_on", "code", "said"),
    [
        ({"torch": "1.2.3"}, "export.version", "exported with torch 1.2.3, and this is torch"),
        ({"machine": "s390x"}, "export.target", "exported for s390x with scalar"),
        ({"isa": "vector9000"}, "export.target", "with vector9000"),
        ({"operators": ("mylib::spin(Tensor x) -> Tensor",)}, "export.operator", "mylib::spin, which isn't registered"),
        (
            {"operators": ("aten::relu(Tensor x) -> Tensor",)},
            "export.operator",
            "and here it is aten::relu(Te",
        ),
    ],
)
def test_another_version_or_machine_is_refused(
    made: Artefact, tmp_path: Path, made_on: dict[str, Any], code: str, said: str
) -> None:
    changed(made, **made_on).save(tmp_path / "f")
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path / "f")
    assert caught.value.code == code
    assert said in str(caught.value)
    assert caught.value.hints


def test_a_later_patch_of_torch_is_taken(made: Artefact, tmp_path: Path) -> None:
    major, minor, *_ = torch.__version__.split(".")
    changed(made, torch=f"{major}.{minor}.99+other").save(tmp_path / "f")
    load(tmp_path / "f")(torch.ones(2, 3))


def test_machine_code_for_another_processor_is_built_again(made: Artefact, tmp_path: Path) -> None:
    changed(made, features=(*made.made_on.features, "zzz")).save(tmp_path / "f")
    with pytest.warns(RuntimeWarning, match="features that this one lacks: it is built again, from its sources"):
        program = load(tmp_path / "f", cache_dir=tmp_path / "cache")
    assert program(torch.ones(2, 3))[1] == 4


def test_machine_code_that_the_loader_rejects_is_built_again(made: Artefact, tmp_path: Path) -> None:
    broken = dataclasses.replace(made, variants=(dataclasses.replace(made.variants[0], image=b"\x7fELF nonsense"),))
    with pytest.warns(RuntimeWarning, match="against other libraries"):
        program = program_of(broken, cache_dir=tmp_path)
    assert program(torch.ones(2, 3))[1] == 4


def test_without_a_compiler_it_says_what_to_install(
    made: Artefact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UnsupportedError) as caught:
            program_of(changed(made, features=("zzz",)), cache_dir=tmp_path)
    assert caught.value.code == "runtime.no_compiler"


def test_a_machine_with_fewer_instructions_is_refused(made: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_runtime.target.cpu_features", lambda: frozenset())
    with pytest.raises(InvalidArgumentError) as caught:
        check_made_on(dataclasses.replace(made.made_on, isa="avx512"))
    assert caught.value.code == "export.target"


# ---- damage ----------------------------------------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, str]], None]) -> None:
    with safetensors.safe_open(path, framework="pt") as file:
        metadata, tensors = dict(file.metadata()), {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    change(tensors, metadata)
    safetensors.torch.save_file(tensors, path, metadata=metadata)


def other_format(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    metadata["intarsia"] = json.dumps({**json.loads(metadata["intarsia"]), "format": 99})


def other_text(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    metadata["program 0"] = metadata["program 0"].replace("kernel(%w, %x)", "kernel(%x)")


def other_code(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    tensors["intarsia/0/library"][100] ^= 1


def no_head(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    del metadata["intarsia"]


def no_weight(tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    del tensors["weight"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_format, "it has format 99, and this is a reader of format 3"),
        (other_text, "program 0 isn't what was written"),
        (other_code, "its machine code isn't what was written"),
        (no_head, "it was not written by intarsia.export"),
        (no_weight, "it lacks the weight 'weight'"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, change: Any, said: str) -> None:
    rewritten(path, change)
    with pytest.raises(InvalidArgumentError) as caught:
        load(path)
    assert caught.value.code == "export.file"
    assert said in str(caught.value)


def test_a_cut_file_and_a_missing_one(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InvalidArgumentError, match="it can't be read"):
        load(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(path.parent / "nowhere")


def test_a_file_that_is_written_anew_leaves_what_was_loaded_whole(path: Path, made: Artefact) -> None:
    program = load(path)
    dataclasses.replace(made, weights={"weight": torch.zeros(3)}).save(path)
    torch.testing.assert_close(program(torch.ones(2, 3))[0], torch.tensor([[2.0, 3.0, 4.0]] * 2))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_element_type_that_the_format_lacks(made: Artefact, tmp_path: Path) -> None:
    strange = dataclasses.replace(made, weights={"weight": torch.zeros(3, dtype=torch.complex128)})
    with pytest.raises(UnsupportedError) as caught:
        strange.save(tmp_path / "f")
    assert caught.value.code == "export.weight"
    assert not list(tmp_path.iterdir())


def test_made_on_says_where(made: Artefact) -> None:
    assert isinstance(made.made_on, MadeOn)
    assert made.made_on.torch == torch.__version__
