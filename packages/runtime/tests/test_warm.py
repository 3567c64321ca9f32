"""Keys of finished plans differ with whatever a pass reads; plans come back from their text; bad entries are misses."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.records import (
    Fresh,
    InputSpec,
    KernelSource,
    Launch,
    Origin,
    Signature,
    SizeFact,
    SizeFacts,
    Target,
)
from intarsia_ir.text import parse_value
from intarsia_ir.values import Captured, Partition
from intarsia_loops import Buildable, Contract, from_fx, kernels
from intarsia_loops.called import called
from intarsia_loops.kernels import KernelSummary
from intarsia_runtime import Cache
from intarsia_runtime.warm import Finished, Hit, Miss, PlanStore, Refused, fingerprint, finish, keys, settings
from intarsia_runtime.warm import store as store_module
from intarsia_runtime.warm.settings import SETTINGS

TEXT = """// level: Captured 2
input('x')
output Fresh(0)
example f32[2, 3]
// dialect: torch 2
graph(%x: f32[2, 3]) {
  # model.py:12 in forward
  %0: f32[2, 3] = torch.add(%x, 1.5, alpha=2)  #12 add
  return (%0,)
}
origins
  1 model.py
    forward: 12
"""


def captured(text: str = TEXT) -> Captured:
    value: Captured = parse_value(text)
    return value


def key(store: PlanStore, value: Captured | None = None) -> str:
    asked = store.look_up(value or captured())
    assert isinstance(asked, Miss)
    return asked.key


@pytest.fixture
def store(cache: Cache) -> PlanStore:
    return PlanStore(cache, ("made by",))


# ---- keys: the program -------------------------------------------------------------------------------------------

EDITS = {
    "constant": ("1.5", "1.25"),
    "sign of a zero": ("1.5", "-0.0"),
    "zero": ("1.5", "0.0"),
    "kind of a number": ("1.5", "True"),
    "attribute": ("alpha=2", "alpha=3"),
    "operator": ("torch.add", "torch.sub"),
    "method": ("torch.add(%x", ".add(%x"),
    "size": ("f32[2, 3]", "f32[2, 4]"),
    "element type": ("f32[2, 3]", "f64[2, 3]"),
    "strides": ("example f32[2, 3]", "example f32[2, 3]@(1, 2)"),
    "offset": ("example f32[2, 3]", "example f32[2, 3]+4"),
    "gradient": ("example f32[2, 3]", "example f32[2, 3] grad"),
    "lazy conjugate": ("example f32[2, 3]", "example c64[2, 3] conj"),
    "written input": ("input('x')", "input('x', written=True)"),
    "another output": ("output Fresh(0)", "output Fresh(0, (1, 2))"),
    "grad mode on leaving": ("example", "exit_grad_mode False\nexample"),
    "line of the user": ("12", "13"),
    "fact": ("input('x')", "symbol s0 in [2, inf] from 'x.size(0)' hint 6\ninput('x')"),
    "range": ("input('x')", "symbol s0 in [3, inf] from 'x.size(0)' hint 6\ninput('x')"),
    "hint": ("input('x')", "symbol s0 in [2, inf] from 'x.size(0)' hint 7\ninput('x')"),
    "where a size is read": ("input('x')", "symbol s0 in [2, inf] from 'x.size(1)' hint 6\ninput('x')"),
}


def with_facts(text: str) -> Captured:
    """Read a text; size facts without a symbol in the graph need no environment."""
    head, facts = [], SizeFacts()
    for line in text.splitlines(keepends=True):
        if line.startswith("symbol"):
            words = line.split()
            low, where = int(words[3].strip("[,")), words[6].strip("'")
            facts = SizeFacts({"s0": where}, {"s0": (low, None)}, (), {"s0": int(words[8])})
        else:
            head.append(line)
    return dataclasses.replace(captured("".join(head)), facts=facts)


def test_programs_that_differ_have_other_keys(store: PlanStore) -> None:
    texts = {"as it is": TEXT, **{name: TEXT.replace(*edit) for name, edit in EDITS.items()}}
    keys = {name: key(store, with_facts(text)) for name, text in texts.items()}
    for one, two in itertools.combinations(keys, 2):
        assert keys[one] != keys[two], (one, two)
    assert keys["as it is"] == key(store)


def test_what_tensors_say_beside_their_text_is_in_the_key(store: PlanStore) -> None:
    x = torch.zeros(2, 3)
    with torch.inference_mode():
        inferred = torch.zeros(2, 3)
    leaf = torch.zeros(2, 3, requires_grad=True)
    inputs = {
        "tensor": x,
        "view": torch.zeros(3, 3)[:2],
        "made under inference": inferred,
        "leaf": leaf,
        "no leaf": leaf * 1,
        "parameter": torch.nn.Parameter(torch.zeros(2, 3)),
    }
    keys = [key(store, dataclasses.replace(captured(), inputs=(value,))) for value in inputs.values()]
    assert len(set(keys)) == len(inputs)
    apart, shared = (dataclasses.replace(captured(), inputs=(x, y)) for y in (torch.zeros(2, 3), x.detach()))
    assert key(store, apart) != key(store, shared)


def test_what_compiles_is_in_the_key(cache: Cache) -> None:
    targets = [Target(), Target(isa="avx2"), Target(threads=3), Target(compiler="clang++"), Target("cuda", "sm_90")]
    others = [("f", repr(target)) for target in targets] + [("other sources", repr(Target()))]
    assert len({key(PlanStore(cache, made_by)) for made_by in others}) == len(others)


def test_sources_are_in_the_fingerprint(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_passes"
    package.mkdir()
    (package / "__init__.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for text in ("ONE = 1\n", "ONE = 2\n"):
        (package / "__init__.py").write_text(text)
        fingerprint.cache_clear()
        found.append(fingerprint(("some_passes",)))
    (package / "table.txt").write_text("ONE = 2\n")
    fingerprint.cache_clear()
    found.append(fingerprint(("some_passes",)))
    fingerprint.cache_clear()
    assert len(set(found)) == 3 and all(torch.__version__ in text and sys.version in text for text in found)


# ---- keys: settings ----------------------------------------------------------------------------------------------


def setting(read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> Callable[[], Any]:
    """Return a context in which a setting has another value."""

    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        before = read()
        assert before != value
        write(value)
        try:
            yield
        finally:
            write(before)

    return changed


def attribute(module: Any, name: str, value: Any) -> Callable[[], Any]:
    def write(new: Any) -> None:
        with torch.backends.__allow_nonbracketed_mutation():  # torch's own test tools freeze flags
            setattr(module, name, new)

    return setting(lambda: getattr(module, name), write, value)


def deterministic(value: bool, warn_only: bool) -> Callable[[], Any]:
    return setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda new: torch.use_deterministic_algorithms(new[0], warn_only=new[1]),
        (value, warn_only),
    )


def precision(backend: str, operation: str, value: str) -> Callable[[], Any]:
    read = functools.partial(torch._C._get_fp32_precision_getter, backend, operation)
    return setting(read, functools.partial(torch._C._set_fp32_precision_setter, backend, operation), value)


def flush(value: bool) -> None:
    assert torch.set_flush_denormal(value), "this processor can't"


VARIATIONS: dict[str, list[Callable[[], Any]]] = {
    "grad": [torch.no_grad],
    "inference": [torch.inference_mode],
    "anomaly": [lambda: torch.autograd.set_detect_anomaly(True)],
    "autocast": [
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.autocast("cpu", torch.float16),
        setting(
            lambda: torch.get_autocast_dtype("cuda"), lambda d: torch.set_autocast_dtype("cuda", d), torch.bfloat16
        ),
    ],
    "autocast cache": [setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False)],
    "default dtype": [setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64)],
    "default device": [lambda: torch.device("meta")],
    "deterministic": [
        deterministic(True, False),
        deterministic(True, True),
        attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
    ],
    "precisions": [
        precision("cuda", "conv", "ieee"),
        precision("cuda", "matmul", "tf32"),
        precision("mkldnn", "matmul", "bf16"),
        precision("generic", "all", "tf32"),
    ],
    "half reductions": [attribute(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False)],
    "mkldnn": [
        setting(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
        setting(torch._C._get_mkldnn_deterministic, torch._C._set_mkldnn_deterministic, True),
    ],
    "nnpack": [setting(torch._C._get_nnpack_enabled, torch.backends.nnpack.set_flags, False)],
    "cudnn": [
        attribute(torch.backends.cudnn, "enabled", False),
        attribute(torch.backends.cudnn, "benchmark", True),
        attribute(torch.backends.cudnn, "deterministic", True),
    ],
    "attention": [
        setting(torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False),
        setting(torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, False),
    ],
    "transformer fast path": [
        setting(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False)
    ],
    "einsum": [
        setting(
            lambda: torch.backends.opt_einsum.enabled,
            lambda value: setattr(torch.backends.opt_einsum, "enabled", value),
            not torch.backends.opt_einsum.enabled,
        )
    ],
    "quantized engine": [attribute(torch.backends.quantized, "engine", "qnnpack")],
    "sparse checks": [torch.sparse.check_sparse_tensor_invariants],
    "denormals": [setting(lambda: False, flush, True)],
    "threads": [setting(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1)],
}
# what a process gets from its environment, and what changes it
FROM_ENVIRONMENT = {"capability": "ATEN_CPU_CAPABILITY", "gelu of infinity": "ONEDNN_MAX_CPU_ISA"}
# what follows from a setting above
DERIVED = {"convolutions": "precisions"}


def test_matmul_precision_is_read_where_both_ways_to_set_it_were_used() -> None:
    code = """
import torch
from intarsia_runtime.warm import settings
torch.set_float32_matmul_precision("high")
torch.backends.cuda.matmul.fp32_precision = "ieee"
one = settings()
torch.set_float32_matmul_precision("medium")
print(one != settings())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_every_setting_is_varied() -> None:
    assert SETTINGS.keys() == {*VARIATIONS, *FROM_ENVIRONMENT, *DERIVED}


@pytest.mark.parametrize("name", VARIATIONS)
def test_settings_that_differ_give_other_keys(name: str, store: PlanStore) -> None:
    value, plain, keys = captured(), SETTINGS[name](), [key(store)]
    for change in VARIATIONS[name]:
        with change():
            assert repr(SETTINGS[name]()) != repr(plain)
            keys.append(key(store, value))
        assert key(store, value) == keys[0]
    assert len(set(keys)) == len(keys)


def test_the_processor_that_torch_is_told_of_is_a_setting() -> None:
    code = "from intarsia_runtime.warm import settings; print(settings())"
    variables = [{}, {"ATEN_CPU_CAPABILITY": "default"}]
    run = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout
        for more in variables
    ]
    assert run[0] != run[1]


# ---- what has no key ---------------------------------------------------------------------------------------------


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_what_has_no_text_is_refused_with_the_reason(store: PlanStore) -> None:
    value = captured()
    (node,) = value.graph_module.graph.find_nodes(op="call_function", target=torch.add)
    node.target = scaled
    asked = store.look_up(value)
    assert isinstance(asked, Refused) and "scaled, which has no text" in asked.reason
    node.target, node.args = torch.add, (node.args[0], torch.ones(3))
    asked = store.look_up(value)
    assert isinstance(asked, Refused) and "$0 (Tensor)" in asked.reason


def test_operators_of_users_are_refused(store: PlanStore) -> None:
    with torch.library._scoped_library("intarsia_warm_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        value = captured()
        (node,) = value.graph_module.graph.find_nodes(op="call_function", target=torch.add)
        for operator in (torch.ops.intarsia_warm_test.twice, torch.ops.intarsia_warm_test.twice.default):
            node.target = operator
            asked = store.look_up(value)
            assert isinstance(asked, Refused) and "intarsia_warm_test.twice" in asked.reason


def test_calls_with_graphs_are_refused(store: PlanStore) -> None:
    value, body = captured(), torch.fx.symbolic_trace(lambda x: (x.sin(),))
    (node,) = value.graph_module.graph.find_nodes(op="call_function", target=torch.add)
    node.target, node.kwargs = HigherOrderOp("cond", (body, body)), {}
    asked = store.look_up(value)
    assert isinstance(asked, Refused) and asked.reason == "the call cond holds graphs"


def test_other_devices_and_sizes_from_data_are_refused(store: PlanStore) -> None:
    elsewhere = captured(TEXT.replace("example f32[2, 3]", "example f32[2, 3] on 'meta'"))
    asked = store.look_up(elsewhere)
    assert isinstance(asked, Refused) and asked.reason == "the graph has tensors on meta"
    asked = store.look_up(dataclasses.replace(captured(), facts=SizeFacts(ranges={"u0": (0, None)})))
    assert isinstance(asked, Refused) and asked.reason == "the size u0 depends on data"


def test_graphs_on_a_gpu_have_keys_that_name_it(store: PlanStore, monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"cuda:0": "a card"}
    monkeypatch.setattr(keys, "gpu_identity", lambda device: described[str(device)])
    value = captured(TEXT.replace("example f32[2, 3]", "example f32[2, 3] on 'cuda:0'"))
    first = store.look_up(value)
    assert isinstance(first, Miss) and first == store.look_up(value) != store.look_up(captured())
    described["cuda:0"] = "another card"
    assert store.look_up(value) != first


# ---- plans -------------------------------------------------------------------------------------------------------

KERNELS = """// dialect: kernels 2
graph(%x: f32[4], constant %c0: f32[]) {
  kernel[i0: 4] {
    %y: f32[4] = map[i0: 4] mul(load(%x, i0), load(%c0))
  }
  return (%y,)
}
"""
SOURCE = KernelSource(
    'extern "C" void seg0(float* x, float* c, float* y) { for (int i = 0; i < 4; i++) y[i] = x[i] * c[0]; }\n',
    "cpp",
    launches=(Launch("seg0", ("x", "c0", "y"), (), (0, 1)),),
)
FACTS = SizeFacts(
    {"s0": "x.size(0)"}, {"s0": (2, None)}, (SizeFact("s0 > 2", Origin("model.py", 3, "f", "add")),), {"s0": 6}
)
SUMMARY = KernelSummary(("y",), 1, 20, 16, 0, (Origin("model.py", 3, "f", "add"),))


def plan(target: Target) -> Finished:
    program = called(from_fx(kernels.parse_ir(KERNELS, constants={"c0": torch.tensor(0.5)})))
    contract = Contract(Signature((InputSpec("x"),), (Fresh(0),)), (), target, torch.device("cpu"))
    half = Buildable(program, contract, SOURCE, "f")
    return Finished(Partition(half), FACTS, True, 3, (SUMMARY,), {"fuse": ('{"a": 1}',)})


def test_a_plan_comes_back_and_runs(store: PlanStore, target: Target) -> None:
    kept = plan(target)
    assert store.keep(key(store), kept) == ""
    asked = store.look_up(captured())
    assert isinstance(asked, Hit)
    back = asked.finished
    for name in ("facts", "draws_random", "n_nests", "kernels", "plans"):
        assert getattr(back, name) == getattr(kept, name), name
    half, original = back.program.forward, kept.program.forward
    assert (half.contract, half.source, half.name) == (original.contract, original.source, original.name)
    assert half.program.items == original.program.items
    (result,) = finish(half, store.cache).run(torch.arange(4.0))
    assert result.tolist() == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize(
    "constant",
    [
        torch.randn(3, 4).t(),
        torch.tensor([True, False]),
        torch.tensor(float("nan"), dtype=torch.bfloat16),
        torch.zeros(0, 3),
        torch.tensor([1 + 2j]),
    ],
    ids=["strides", "bool", "bf16", "empty", "complex"],
)
def test_constants_come_back_bit_for_bit(constant: torch.Tensor, store: PlanStore, target: Target) -> None:
    kept = plan(target)
    program = dataclasses.replace(kept.program.forward.program, constants={"c0": constant})
    changed = dataclasses.replace(kept, program=Partition(dataclasses.replace(kept.program.forward, program=program)))
    assert store.keep(key(store), changed) == ""
    asked = store.look_up(captured())
    assert isinstance(asked, Hit)
    back = asked.finished.program.forward.program.constants["c0"]
    assert (back.dtype, back.shape, back.stride()) == (constant.dtype, constant.shape, constant.stride())
    assert (
        back.contiguous().numpy(force=True).tobytes() == constant.contiguous().numpy(force=True).tobytes()
        if (constant.dtype is not torch.bfloat16)
        else bool(back.isnan())
    )


@pytest.mark.parametrize(
    ("constant", "reason"),
    [(torch.zeros(1 << 19), "too large"), (torch.nn.Parameter(torch.zeros(2)), "Parameter"), (0.5, "float")],
)
def test_what_a_plan_cannot_hold_is_told(constant: Any, reason: str, store: PlanStore, target: Target) -> None:
    kept = plan(target)
    program = dataclasses.replace(kept.program.forward.program, constants={"c0": constant})
    changed = dataclasses.replace(kept, program=Partition(dataclasses.replace(kept.program.forward, program=program)))
    assert reason in store.keep(key(store), changed)
    assert isinstance(store.look_up(captured()), Miss)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.replace("// plan 2", "// plan 1"),
        lambda text: text.replace('"n_nests"', '"n_nets"'),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("// level: Buildable 2", "// level: Buildable 3"),
        lambda text: text.replace("kernel(", "kernel["),
        lambda text: text.replace("seg0", "\udc80"),
    ],
)
def test_a_bad_entry_is_a_miss_with_one_warning(damage: Callable[[str], str], store: PlanStore, target: Target) -> None:
    store_module._warn_once.cache_clear()
    where = key(store)
    assert store.keep(where, plan(target)) == ""
    text = store.cache.get(where)
    assert text is not None
    store.cache.put(where, damage(text.decode()).encode(errors="surrogateescape"))
    with pytest.warns(RuntimeWarning, match="will be made again"):
        assert store.look_up(captured()) == Miss(where)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.look_up(captured()) == Miss(where)


def test_settings_name_what_they_are() -> None:
    assert settings().splitlines()[0] == f"grad: {torch.is_grad_enabled()}"
