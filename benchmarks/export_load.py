"""How long it takes to load an artefact: BERT (base) and ResNet-18, and how large they are.

    python benchmarks/export_load.py [bert resnet18] [--rounds 3] [--keep FOLDER]

Each round loads in a process of its own, which imports neither the tracer nor a pass. Reported are seconds of wall
clock and of CPU for `intarsia_export.load`, apart from the imports, and for the first call after it; the least and the
median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHILD = """
import json, sys, time
start = time.perf_counter()
import torch, intarsia_export
imported = time.perf_counter()
cpu = time.process_time()
program = intarsia_export.load(sys.argv[1])
loaded, used = time.perf_counter(), time.process_time() - cpu
calls = torch.load(sys.argv[2], weights_only=False)
called = time.perf_counter()
result = program(*calls)
first = time.perf_counter()
strange = [m for m in sys.modules if m in ("intarsia", "intarsia_tensorcapture", "intarsia_pyeval", "intarsia_fuser")]
assert not strange, strange
print(json.dumps([imported - start, loaded - imported, used, first - called]))
"""


def bert() -> tuple[Any, tuple[Any, ...]]:
    """Return BERT (base, 12 layers, of random weights) and an example."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="sdpa", return_dict=False)
    return BertModel(config).eval(), (torch.randint(0, config.vocab_size, (2, 64)),)


def resnet18() -> tuple[Any, tuple[Any, ...]]:
    """Return ResNet-18 and an example."""
    import torch

    from integration.models.resnet import ResNet18

    return ResNet18(1000).eval(), (torch.randn(2, 3, 224, 224),)


def main() -> None:
    """Export, load, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["bert", "resnet18"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp())
    for name in asked.models:
        path = folder / f"{name}.safetensors"
        seconds = exported(name, path)
        rounds = [loaded(path) for _ in range(asked.rounds)]
        imports, load, cpu, first = ([r[k] for r in rounds] for k in range(4))
        print(
            f"{name}: {path.stat().st_size / 1e6:.0f} MB, exported in {seconds:.1f} s; load {min(load):.3f} s "
            f"(median {statistics.median(load):.3f}, CPU {min(cpu):.3f}), imports {min(imports):.2f} s, "
            f"first call {min(first):.3f} s"
        )


def exported(name: str, path: Path) -> float:
    """Export a model, check it against eager, and return the seconds that it took."""
    import torch

    import intarsia
    import intarsia_export

    model, args = {"bert": bert, "resnet18": resnet18}[name]()
    start = time.perf_counter()
    intarsia.export(model, args).save(path)
    seconds = time.perf_counter() - start
    torch.save(args, path.with_suffix(".calls"))
    with torch.no_grad():
        torch.testing.assert_close(intarsia_export.load(path)(*args), model(*args), rtol=1e-3, atol=1e-4)
    return seconds


def loaded(path: Path) -> list[float]:
    """Load in another process; return seconds for imports, loading, its CPU, and the first call."""
    command = [sys.executable, "-c", CHILD, str(path), str(path.with_suffix(".calls"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


if __name__ == "__main__":
    main()
