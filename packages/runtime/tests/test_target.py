"""What is found out about this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from intarsia_ir.errors import InvalidArgumentError
from intarsia_runtime import detect_target
from intarsia_runtime.target import _isa, compiler_identity, cpu_features

AVX512 = frozenset(["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"])


def test_target_of_this_machine() -> None:
    target = detect_target()
    assert target.device == "cpu"
    assert target.threads == torch.get_num_threads()
    assert target.isa in ("avx512", "avx2", "neon", "scalar")


def test_arguments_win() -> None:
    target = detect_target(compiler="my-compiler", threads=3)
    assert (target.compiler, target.threads) == ("my-compiler", 3)


def test_threads_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="not 0"):
        detect_target(threads=0)


def test_no_compiler_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect_target().compiler == ""


@pytest.mark.parametrize(
    ("machine", "features", "isa"),
    [
        ("x86_64", AVX512, "avx512"),
        ("x86_64", AVX512 - {"avx512vl"}, "avx2"),
        ("x86_64", frozenset({"avx2", "fma", "f16c"}), "avx2"),
        ("x86_64", frozenset({"avx2"}), "scalar"),
        ("x86_64", frozenset(), "scalar"),
        ("aarch64", frozenset({"asimd"}), "neon"),
        ("riscv64", frozenset(), "scalar"),
    ],
)
def test_isa(machine: str, features: frozenset[str], isa: str) -> None:
    assert _isa(machine, features) == isa


def test_features_are_those_of_the_first_cpu(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor: 0\nflags\t\t: fpu avx2\n\nprocessor: 1\nflags\t\t: fpu\n")
    (tmp_path / "arm").write_text("processor: 0\nFeatures\t: asimd fp\n")
    assert cpu_features(tmp_path / "x86") == {"fpu", "avx2"}
    assert cpu_features(tmp_path / "arm") == {"asimd", "fp"}
    assert cpu_features(tmp_path / "absent") == frozenset()


def test_another_compiler_has_another_identity(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o700)
    assert compiler_identity(str(tmp_path / "one")) != compiler_identity(str(tmp_path / "two"))
    assert compiler_identity("no-such-compiler") == compiler_identity("") == ""


@pytest.mark.parametrize(
    ("numbers", "processors", "gb_per_s"),
    [
        ({"major": 9, "minor": 0, "multi_processor_count": 132}, 132, 4800.0),
        ({"major": 8, "minor": 9, "multi_processor_count": 54}, 54, 1019.5),  # half of the row before it
    ],
)
def test_a_gpu_tells_its_numbers(monkeypatch: pytest.MonkeyPatch, numbers, processors, gb_per_s) -> None:
    asked = SimpleNamespace(
        warp_size=32, regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=100 << 10, L2_cache_size=48 << 20,
        **numbers,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: asked)
    target = detect_target(torch.device("cuda", 0))
    assert target.isa == f"sm_{numbers['major']}{numbers['minor']}"
    machine = target.machine
    assert (machine.processors, machine.gb_per_s) == (processors, gb_per_s)
    assert (machine.register_bytes, machine.l2_bytes, machine.shared_bytes) == (1 << 18, 48 << 20, 100 << 10)


def test_the_environment_names_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", " ccache my++ -pipe ")
    assert detect_target().compiler == "ccache my++ -pipe" and detect_target(compiler="g++").compiler == "g++"
    monkeypatch.setenv("CXX", " ")
    assert detect_target().compiler in ("g++", "clang++", "")


FORKED = """
import os, signal
import torch
from intarsia_runtime import nan_gelu

torch.ones(1 << 20).softmax(0)  # threads, which a forked process hasn't
known = nan_gelu()
if os.fork() == 0:
    signal.alarm(60)  # where it waits for them
    os._exit(nan_gelu() != known)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""


def test_what_eager_makes_of_infinity_is_known_in_a_forked_process() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
