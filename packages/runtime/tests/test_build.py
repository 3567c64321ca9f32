"""Building: what is compiled when, and what happens with a compiler that is missing, fails, hangs or lies."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_runtime import Cache, build
from intarsia_runtime.library import MAPPED, Library

ADD = """extern "C" void add(float* x, float* y, long n) {
#pragma omp parallel for
  for (long i = 0; i < n; i++) y[i] = x[i] + CONSTANT;
}
"""


def source(constant: float = 1.0, **changes: object) -> KernelSource:
    text = ADD.replace("CONSTANT", repr(constant))
    return replace(KernelSource(text, "cpp", launches=(Launch("add", ("x", "y"), ("n",)),)), **changes)  # type: ignore[arg-type]


def run(library: Library, n: int = 100) -> torch.Tensor:
    x, y = torch.arange(n, dtype=torch.float32), torch.empty(n)
    library.launcher("add", 3)(x.data_ptr(), y.data_ptr(), n)
    return y


def expected(constant: float = 1.0, n: int = 100) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32) + constant


def counting(script: Callable[[str], str], tmp_path: Path) -> tuple[str, Callable[[], int]]:
    """Return a compiler that notes each translation unit, and the count so far."""
    log = tmp_path / "log"
    log.touch()
    compiler = script(f'case " $* " in *" -c "*) echo x >> {log};; esac\nexec {shutil.which("g++")} "$@"')
    return compiler, lambda: len(log.read_text().split())


def test_build_and_call(cache: Cache, target: Target) -> None:
    assert torch.equal(run(build(source(), target, cache=cache)), expected())


def test_second_build_compiles_nothing(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    compiler, count = counting(script, tmp_path)
    target = replace(target, compiler=compiler)
    for _ in range(3):
        run(build(source(), target, cache=Cache(cache.directory.parent)))
    assert count() == 1
    build(source(2.0), target, cache=cache)
    assert count() == 2
    build(source(options=(("flags", "-O2"),)), target, cache=cache)
    assert count() == 3


def test_another_compiler_builds_again(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    one, count = counting(script, tmp_path)
    two, _ = counting(script, tmp_path)
    for compiler in (one, two):
        build(source(), replace(target, compiler=compiler), cache=cache)
    assert count() == 2


def test_parts_are_linked_together(cache: Cache, target: Target) -> None:
    """Entries are in one part, the functions they call in others."""
    parts = (
        'void inner(float*, float*, long);\nextern "C" void add(float* x, float* y, long n) { inner(x, y, n); }\n',
        "void inner(float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = x[i] + 5; }\n",
    )
    library = build(source(text="".join(parts), parts=parts), target, cache=cache)
    assert torch.equal(run(library), expected(5.0))


def test_math_functions_resolve(cache: Cache, target: Target) -> None:
    text = 'extern "C" double sin(double); extern "C" void add(float* x, float* y, long n) { y[0] = sin(x[1] * n); }'
    library = build(source(text=text), target, cache=cache)
    assert abs(run(library, 2)[0].item() - torch.tensor(2.0).sin().item()) < 1e-6


def test_threads_are_those_of_torch(cache: Cache, target: Target) -> None:
    """The unit brings no OpenMP library of its own: torch's setting is the one that it sees."""
    text = 'extern "C" int omp_get_max_threads(); extern "C" void add(float* x, float* y, long n) '
    text += "{ y[0] = omp_get_max_threads(); }"
    library = build(source(text=text), target, cache=cache)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, 2):
            torch.set_num_threads(threads)
            assert run(library, 1).item() == threads
    finally:
        torch.set_num_threads(before)
    mapped = Path("/proc/self/maps").read_text()
    assert len({line.split()[-1] for line in mapped.splitlines() if "libgomp" in line}) <= 1


def test_the_interpreter_lock_is_free_while_a_kernel_runs(cache: Cache, target: Target) -> None:
    text = 'extern "C" void add(float* x, float* y, long n) { while (*(volatile float*)x == 0) {} y[0] = 1; }'
    launch = build(source(text=text), target, cache=cache).launcher("add", 3)
    x, y = torch.zeros(1), torch.zeros(1)
    thread = threading.Thread(target=launch, args=(x.data_ptr(), y.data_ptr(), 1))
    thread.start()
    x[0] = 1  # never reached if the kernel kept the lock
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert y.item() == 1


def test_launchers_check_their_arguments(cache: Cache, target: Target) -> None:
    library = build(source(), target, cache=cache)
    launch = library.launcher("add", 3)
    with pytest.raises(TypeError, match="takes 3"):
        launch(1, 2)
    with pytest.raises(TypeError):
        launch("a", "b", "c")
    with pytest.raises(InternalError, match="no symbol 'nothing'"):
        library.launcher("nothing", 3)
    with pytest.raises(InternalError, match="no symbol"):
        library.launcher("add", 4)


def test_a_launcher_keeps_its_code(cache: Cache, target: Target) -> None:
    launch = build(source(), target, cache=cache).launcher("add", 3)
    gc.collect()
    x, y = torch.zeros(4), torch.empty(4)
    launch(x.data_ptr(), y.data_ptr(), 4)
    assert y.tolist() == [1.0] * 4


def test_dropped_libraries_are_unloaded(cache: Cache, target: Target) -> None:
    def mappings() -> int:
        return sum(f"/memfd:{MAPPED} " in line for line in Path("/proc/self/maps").read_text().splitlines())

    libraries = [build(source(), target, cache=cache) for _ in range(3)]
    assert mappings() > 0
    libraries.clear()
    gc.collect()
    assert mappings() == 0


def test_nothing_is_left_in_the_scratch_folder(cache: Cache, target: Target) -> None:
    build(source(), target, cache=cache)
    assert not list((cache.directory / "tmp").iterdir())


def only_entry(cache: Cache) -> Path:
    (path,) = (p for p in cache.directory.glob("??/*") if len(p.name) == 64)
    return path


@pytest.mark.parametrize("size", [0, 1, 200, 2000])
def test_truncated_code_is_built_again_even_while_mapped(cache: Cache, target: Target, size: int) -> None:
    first = build(source(), target, cache=cache)
    os.truncate(only_entry(cache), size)
    second = build(source(), target, cache=cache)
    assert torch.equal(run(first), expected())
    assert torch.equal(run(second), expected())


def test_code_swapped_with_other_code_is_built_again(cache: Cache, target: Target) -> None:
    build(source(1.0), target, cache=cache)
    one = only_entry(cache)
    build(source(2.0), target, cache=cache)
    (two,) = (p for p in cache.directory.glob("??/*") if len(p.name) == 64 and p != one)
    shutil.copy(two, one)
    assert torch.equal(run(build(source(1.0), target, cache=cache)), expected(1.0))


def test_intact_code_that_does_not_load_is_built_again(cache: Cache, target: Target) -> None:
    """As when machines with different C libraries share a cache."""
    build(source(), target, cache=cache)
    key = only_entry(cache).name
    cache.put(key, b"\x7fELF, but not for this machine")
    assert torch.equal(run(build(source(), target, cache=cache)), expected())
    assert torch.equal(run(Library(cache.get(key) or b"", cache.directory / "tmp")), expected())


def test_code_loads_where_no_file_can_be_made(cache: Cache, target: Target, tmp_path: Path) -> None:
    build(source(), target, cache=cache)
    image = cache.get(only_entry(cache).name) or b""
    libraries = [Library(image, tmp_path / "nothing") for _ in range(2)]
    assert all(torch.equal(run(library), expected()) for library in libraries)


def test_code_loads_where_there_are_no_files_in_memory(
    cache: Cache, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert all(torch.equal(run(build(source(c), target, cache=cache)), expected(c)) for c in (1.0, 2.0))


def test_mapped_code_keeps_no_file_open_and_units_are_not_confused(cache: Cache, target: Target) -> None:
    """The loader takes a path that it knows for a library that it has, and descriptors come again."""
    n_open = len(os.listdir("/proc/self/fd"))
    libraries = [build(source(float(n)), target, cache=cache) for n in range(4)]
    assert all(torch.equal(run(library), expected(float(n))) for n, library in enumerate(libraries))
    assert len(os.listdir("/proc/self/fd")) == n_open


def test_a_compiler_of_several_words(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    wrapper = script(f'echo "$@" >> {log}; exec "$@"')
    for options in ("-pipe", "-pipe", '-DA="1 2"'):
        named = replace(target, compiler=f"{wrapper} {shutil.which('g++')} {options}")
        assert torch.equal(run(build(source(), named, cache=cache)), expected())
    lines = log.read_text().splitlines()
    assert len(lines) == 4 and "-pipe" in lines[0] and "-DA=1 2" in lines[3]


def test_the_message_says_that_the_environment_names_the_compiler(
    cache: Cache, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedError, match=r"'no-such-compiler' can't be started \(CXX names it\)"):
        build(source(), replace(target, compiler="no-such-compiler"), cache=cache)


@pytest.mark.parametrize("compiler", ["", "no-such-compiler", "/no/such/compiler", "'unbalanced"])
def test_no_compiler(cache: Cache, target: Target, compiler: str) -> None:
    with pytest.raises(UnsupportedError, match="install g") as caught:
        build(source(), replace(target, compiler=compiler), cache=cache)
    assert caught.value.code == "runtime.no_compiler"


def test_a_compiler_that_is_no_program(cache: Cache, target: Target, tmp_path: Path) -> None:
    path = tmp_path / "compiler"
    path.write_bytes(b"\x00\x01")
    path.chmod(0o700)
    with pytest.raises(UnsupportedError) as caught:
        build(source(), replace(target, compiler=str(path)), cache=cache)
    assert caught.value.code == "runtime.no_compiler"


def test_an_error_in_the_text_shows_the_message_and_keeps_the_text(cache: Cache, target: Target) -> None:
    with pytest.raises(InternalError, match=r"expected .*;") as caught:
        build(source(text="int x = 1 int y;"), target, cache=cache)
    assert caught.value.code == "runtime.compiler_failed"
    (kept,) = (cache.directory / "failed").iterdir()
    assert str(kept) in str(caught.value)
    assert kept.read_text().startswith("int x = 1 int y;")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo broken >&2; exit 3", "status 3:\nbroken"),
        ("kill -SEGV $$", "SIGSEGV:\nit printed nothing"),
        ("exit 0", "wrote nothing|no such file|No such file"),
    ],
)
def test_a_failing_compiler(
    cache: Cache, target: Target, script: Callable[[str], str], body: str, message: str
) -> None:
    with pytest.raises(InternalError) as caught:
        build(source(), replace(target, compiler=script(body)), cache=cache)
    assert re.search(message, caught.value.explanation)
    assert caught.value.code == "runtime.compiler_failed"
    assert not list((cache.directory / "tmp").iterdir())


def test_a_compiler_that_writes_garbage(cache: Cache, target: Target, script: Callable[[str], str]) -> None:
    body = 'while [ "$1" != -o ]; do shift; done; echo garbage > "$2"'
    for _ in range(2):  # the garbage must not be kept
        with pytest.raises(InternalError, match="can't be loaded") as caught:
            build(source(), replace(target, compiler=script(body)), cache=cache)
        assert caught.value.code == "runtime.load_failed"
    assert not [p for p in cache.directory.glob("??/*") if len(p.name) == 64]


def test_a_hanging_compiler_is_stopped_with_its_children(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    compiler = script(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    start = time.monotonic()
    with pytest.raises(UnsupportedError, match=r"within 0\.5 s") as caught:
        build(source(), replace(target, compiler=compiler), cache=cache, timeout_s=0.5)
    assert time.monotonic() - start < 10
    assert caught.value.code == "runtime.compiler_timeout"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the compiler's child is still running"
        time.sleep(0.01)


def test_a_compiler_that_fails_now_and_then(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    compiler = script(f'[ -e {flag} ] || {{ touch {flag}; exit 1; }}\nexec {shutil.which("g++")} "$@"')
    target = replace(target, compiler=compiler)
    with pytest.raises(InternalError):
        build(source(), target, cache=cache)
    assert torch.equal(run(build(source(), target, cache=cache)), expected())


def test_other_languages_are_refused(cache: Cache, target: Target) -> None:
    with pytest.raises(UnsupportedError) as caught:
        build(source(language="metal"), target, cache=cache)
    assert caught.value.code == "runtime.language"


FORK = multiprocessing.get_context("fork")


def race(directory: Path, target: Target) -> None:
    cache = Cache(directory)
    for n in range(3):
        text = f'extern "C" void add(float* x, float* y, long n) {{ y[0] = {n}; }}'
        library = build(source(text=text), target, cache=cache)
        assert run(library, 1).item() == n


def test_processes_compile_each_unit_at_most_twice(
    target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    compiler, count = counting(script, tmp_path)
    target = replace(target, compiler=compiler)
    racers = [FORK.Process(target=race, args=(tmp_path / "shared", target)) for _ in range(4)]
    for process in racers:
        process.start()
    for process in racers:
        process.join(timeout=120)
    assert [process.exitcode for process in racers] == [0] * 4
    assert 3 <= count() <= 6


def test_killed_builders_leave_a_cache_that_works(target: Target, tmp_path: Path) -> None:
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15):
        process = FORK.Process(target=race, args=(tmp_path / "shared", target))
        process.start()
        time.sleep(delay)
        process.kill()
        process.join()
    race(tmp_path / "shared", target)


def test_launchers_in_dead_cycles_are_collected_before_their_code(cache: Cache, target: Target) -> None:
    def mappings() -> int:
        return sum(f"/memfd:{MAPPED} " in line for line in Path("/proc/self/maps").read_text().splitlines())

    for _ in range(3):
        library = build(source(), target, cache=cache)
        cycle: list[object] = [library.launcher("add", 3), library, library.launcher("add", 3)]
        cycle.append(cycle)
        assert mappings() > 0
        del library, cycle
        gc.collect()
        assert mappings() == 0


# ---- the directory goes, or its disk is full, while a unit is built


def test_a_directory_deleted_while_building_is_made_again(
    cache: Cache, target: Target, script: Callable[[str], str], tmp_path: Path
) -> None:
    gxx, flag = shutil.which("g++"), tmp_path / "flag"
    deletes = script(
        f'[ -e {flag} ] && exec {gxx} "$@"\ntouch {flag}; rm -rf {cache.directory.parent}; exec {gxx} "$@"'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(run(build(source(), replace(target, compiler=deletes), cache=cache)), expected())
    assert not cache.temporary and only_entry(cache).exists()


def test_a_directory_deleted_between_builds_is_made_again(cache: Cache, target: Target) -> None:
    for constant in (1.0, 2.0):
        shutil.rmtree(cache.directory.parent)
        assert torch.equal(run(build(source(constant), target, cache=cache)), expected(constant))


def test_a_disk_that_is_full_while_building_is_told_once_and_another_serves(
    cache: Cache, target: Target, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = str(cache.directory.parent)
    real = sys.modules["intarsia_runtime.cache"].check_room

    def check_room(folder: Path) -> None:
        if str(folder).startswith(full):
            raise OSError(28, "No space left on device", str(folder))
        real(folder)

    for module in ("cache", "build"):
        monkeypatch.setattr(sys.modules[f"intarsia_runtime.{module}"], "check_room", check_room)
    gxx = shutil.which("g++")
    compiler = script(f'case $PWD in {full}*) echo "No space left on device" >&2; exit 1;; esac; exec {gxx} "$@"')
    with pytest.warns(RuntimeWarning, match=r"cache directory .* can't be used \(.*No space left") as seen:
        for constant in (1.0, 2.0):
            library = build(source(constant), replace(target, compiler=compiler), cache=cache)
            assert torch.equal(run(library), expected(constant))
    assert len(seen) == 1 and cache.temporary


def test_the_compilers_own_temporary_files_need_no_place_of_the_users(
    cache: Cache, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    assert torch.equal(run(build(source(), target, cache=cache)), expected())
