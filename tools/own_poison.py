"""Close the doors of torch's own compilers, then run the demo's own front end, and package tests on demand.

An import scan can't see everything: `import torch` itself loads parts of what this project re-implements. Here each
door is replaced by a function that raises, so whoever reaches one fails. As a plugin of pytest (`-p own_poison`, with
this folder on the path) it closes them around the tests of a run: the session `isolated` runs every package's so.
Tests that need a door are marked `peer`, live in integration/, and are counted: their number is written here, so that
none is added unnoticed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
DOORS = (
    ("torch", "compile"),
    ("torch._dynamo", "optimize"),
    ("torch._dynamo.convert_frame", "convert_frame"),
    ("torch._inductor.compile_fx", "compile_fx"),
    ("torch._functorch.aot_autograd", "aot_function"),
    ("torch._functorch.aot_autograd", "aot_module"),
    ("torch._functorch.aot_autograd", "aot_module_simplified"),
    ("torch.fx.experimental.proxy_tensor", "make_fx"),
    ("torch.export", "export"),
    ("torch.jit", "trace"),
    ("torch.jit", "script"),
    ("torch._subclasses.functional_tensor", "FunctionalTensorMode.__init__"),
)


# what eager itself loads at the first derivative in forward mode, and scripts formulas of its own in
LOADED_BY_EAGER = ("torch._decomp.decompositions_for_jvp",)

# tests that compare with, or plug into, another compiler; all in integration/
PEERS = 42


class DoorClosedError(Exception):
    """Somebody called one of torch's own compilers."""


def close_doors() -> None:
    """Replace every door by a function that raises `DoorClosedError`; what eager goes through itself comes before."""
    for module_name in LOADED_BY_EAGER:
        importlib.import_module(module_name)
    for module_name, path in DOORS:
        owner: Any = importlib.import_module(module_name)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, _closed(f"{module_name}.{path}"))


def _closed(door: str) -> Any:
    def raise_closed(*args: Any, **kwargs: Any) -> NoReturn:
        raise DoorClosedError(f"{door} was called: Intarsia must not use torch's own compilers")

    return raise_closed


def pytest_configure(config: object) -> None:
    """Close the doors before a test is collected; where torch isn't installed there are none."""
    if importlib.util.find_spec("torch") is not None:
        _interpret_kernels()
        close_doors()


def _interpret_kernels() -> None:
    """Have Triton interpret: closing the doors imports it, before a test could ask for its interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"


def peers() -> dict[str, int]:
    """Count the tests marked `peer`, by top-level folder."""
    counts: dict[str, int] = {}
    for path in [*ROOT.glob("integration/**/test_*.py"), *ROOT.glob("packages/*/tests/**/*.py")]:
        n = len(re.findall(r"^\s*@pytest\.mark\.peer\b", path.read_text(encoding="utf-8"), re.MULTILINE))
        if n:
            folder = path.relative_to(ROOT).parts[0]
            counts[folder] = counts.get(folder, 0) + n
    return counts


def main(arguments: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    _interpret_kernels()
    close_doors()
    import torch

    try:
        torch.compile(lambda x: x)(torch.ones(1))
    except DoorClosedError:
        print("own: the planted call was caught")
    else:
        print("own: the planted call was NOT caught", file=sys.stderr)
        return 1
    if (found := peers()) != {"integration": PEERS}:
        print(f"own: tests marked peer: {found}; there should be {PEERS}, all in integration/", file=sys.stderr)
        return 1
    if arguments:
        import pytest

        return int(pytest.main(["-q", "-m", "not peer and not slow", *arguments]))
    from integration.demo import run_own

    return run_own()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
