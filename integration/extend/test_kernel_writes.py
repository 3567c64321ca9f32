"""What is read off a kernel about its writes: never less than it writes, and mostly no more."""

from __future__ import annotations

import importlib.util
import random

import pytest
import torch

from intarsia_tensorcapture.kernel_writes import Unreadable, written_parameters
from integration.extend.test_kernels import interpreted, kernels

pytest.importorskip("triton")
__all__ = ["interpreted", "kernels"]  # fixtures

HEAD = """
import triton
import triton.language as tl


@triton.jit
def put(ptr, value):
    tl.store(ptr, value)


@triton.jit
def moved(ptr, by):
    return ptr + by


"""
POINTERS = ["p0", "p1", "p2", "p3"]


def program(name, rng):
    """Return the text of a kernel that passes pointers around and writes through some."""
    names, lines = [f"{p} + at" for p in POINTERS], []
    for n in range(rng.randint(3, 9)):
        a, b = rng.choice(names), rng.choice(names)
        line = rng.choice(
            [
                f"a{n} = {a}",
                f"a{n}, b{n} = {a}, {b}",
                f"a{n} = moved({a}, 0)",
                f"a{n} = {a} if FLAG else {b}",
                f"v = v + tl.load({a})",
                f"tl.store({a}, v)",
                f"tl.store({a}, tl.load({b}) + v)",
                f"tl.atomic_add({a}, v)",
                f"put({a}, tl.load({b}) * 2)",
                f"put(value=v, ptr={a})",
                f"for _ in range(2):\n        tl.store({a}, v)\n        v = v + tl.load({b})",
            ]
        )
        lines.append(line)
        names += [f"a{n}"] * line.startswith(f"a{n}") + [f"b{n}"] * (f", b{n} =" in line)
    body = "\n    ".join(["at = tl.arange(0, 8)", "v = tl.full((8,), 1.5, tl.float32)", *lines])
    return f"@triton.jit\ndef {name}({', '.join(POINTERS)}, FLAG: tl.constexpr):\n    {body}\n\n\n"


@pytest.fixture(scope="module")
def random_kernels(interpreted, tmp_path_factory):
    rng, path = random.Random(0), tmp_path_factory.mktemp("kernels") / "random_kernels.py"
    path.write_text(HEAD + "".join(program(f"kernel_{n}", rng) for n in range(60)))
    spec = importlib.util.spec_from_file_location("random_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [getattr(module, f"kernel_{n}") for n in range(60)]


def test_what_changes_is_written(random_kernels):
    """The oracle is a run: a tensor that changed was written."""
    n_changed = n_said = 0
    for kernel in random_kernels:
        said = written_parameters(kernel)
        for flag in (False, True):
            tensors = {p: torch.arange(8.0) + n for n, p in enumerate(POINTERS)}
            before = {p: t.clone() for p, t in tensors.items()}
            kernel[(1,)](**tensors, FLAG=flag)
            changed = {p for p, t in tensors.items() if not torch.equal(t, before[p])}
            assert changed <= said, kernel.fn.__name__
            n_changed, n_said = n_changed + len(changed), n_said + len(said)
    assert 0.8 * n_said < n_changed, "most of what is said to be written is"


def test_of_the_kernels_of_users(kernels):
    """Numbers that pointers are moved by are named as well, which does no harm: nobody writes a number."""
    pointers = lambda kernel: {name for name in written_parameters(kernel) if name.endswith("ptr")}
    for kernel in (kernels.add_kernel, kernels.scale_kernel, kernels.rows_kernel, kernels.tuned_kernel.fn):
        assert pointers(kernel) == {"out_ptr"}
    assert pointers(kernels.heuristic_kernel.fn) == {"out_ptr"}
    assert pointers(kernels.count_kernel) == {"counts_ptr"}, "an index that is loaded points nowhere"


SOURCES = {
    "block pointer": (
        "tl.store(tl.advance(tl.make_block_ptr(b, (8,), (1,), (0,), (8,), (0,)), (0,)), tl.load(a))",
        "b",
    ),
    "descriptor": ("d = tl.make_tensor_descriptor(b, [8], [1], [8])\n    d.store([0], tl.load(a))", "b"),
    "method": ("(b + 1).store(a.load())", "b"),
    "a function that is given": ("f(a)", "a"),
    "a value": ("x = tl.load(a)\n    x.sum()\n    tl.store(b, x)", "b"),
    "assembly": ("tl.inline_asm_elementwise('', '', [a, b], tl.float32, True, 1)", "ab"),
    "library": ("tl.store(b, libdevice.sin(tl.load(a)))", "b"),
    "a loop": ("for i in range(3):\n        tl.store(b, i)\n        b = a + i", "ab"),
    "walrus": ("tl.store((c := b), tl.load(a))", "b"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_of_parts_of_the_language(name, interpreted, tmp_path):
    body, written = SOURCES[name]
    assert {*written} == written_parameters(defined(body, tmp_path).kernel)


def test_pointers_from_memory_are_no_ones(interpreted, tmp_path):
    with pytest.raises(Unreadable):
        written_parameters(defined("tl.store(tl.load(a).to(tl.pointer_type(tl.float32)), 1.0)", tmp_path).kernel)


def defined(body, folder):
    path = folder / "defined.py"
    path.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
        f"@triton.jit\ndef kernel(a, b, f: tl.constexpr):\n    {body}\n"
    )
    spec = importlib.util.spec_from_file_location("defined", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
