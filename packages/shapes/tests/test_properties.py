"""Soundness: any sizes that pass the generated check give exactly the predicted output shapes."""

import importlib.util
import os
import random
from pathlib import Path

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._pytree import tree_leaves

from intarsia_shapes import ShapeEnv, check_source, fake_mode, fakeify, freeze, thawed

_spec = importlib.util.spec_from_file_location("shape_cases", Path(__file__).parent / "cases.py")
_cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cases)
CASES, UNBACKED = _cases.CASES, _cases.UNBACKED
SAMPLES = int(os.environ.get("INTARSIA_SHAPE_SAMPLES", "45"))  # of each program
CHOICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16)


def record(inputs, function):
    """Run `function` on fake inputs; return the environment, the fake inputs and the fake outputs."""
    env = ShapeEnv()
    mode = fake_mode(env)
    fakes = [fakeify(mode, t, f"a{k}", dims) for k, (t, dims) in enumerate(inputs)]
    with enable_python_dispatcher(), mode:
        return env, fakes, function(*fakes)


def value(env, number, values):
    return int(env.replace(number.node.expr).xreplace(values)) if isinstance(number, torch.SymInt) else number


def sample(rng, env, fakes, inputs):
    """Real inputs for random sizes, and the sizes."""
    values = {s: rng.choice(CHOICES) for s in env.sources}
    arguments = []
    for (real, _), fake in zip(inputs, fakes):
        size = [int(n.node._expr.xreplace(values)) if isinstance(n, torch.SymInt) else n for n in fake.shape]
        arguments.append(torch.randn(size) if real.is_floating_point() else torch.randint(0, 2, size))
    return values, arguments


def violations(env, fakes, outputs, inputs, function, facts, rng):
    """Count (admissible samples, samples whose shapes or strides were predicted wrongly)."""
    namespace = {}
    exec(check_source(facts, tuple(f"a{k}" for k in range(len(inputs)))), namespace)
    admissible = wrong = 0
    for _ in range(SAMPLES):
        values, arguments = sample(rng, env, fakes, inputs)
        if not namespace["check"](*arguments):
            continue
        admissible += 1
        try:
            real = function(*arguments)
        except (RuntimeError, IndexError, ValueError):
            wrong += 1
            continue
        for fake, tensor in zip(tree_leaves(outputs), tree_leaves(real)):
            if isinstance(tensor, torch.Tensor):
                shape = tuple(value(env, n, values) for n in fake.shape)
                stride = tuple(value(env, n, values) for n in fake.stride())
                same_stride = stride == tensor.stride() or any(n < 2 for n in tensor.shape)
                wrong += shape != tuple(tensor.shape) or not same_stride
    return admissible, wrong


@pytest.fixture(scope="module")
def recorded():
    torch.manual_seed(0)
    return [(name, inputs, function, *record(inputs, function)) for name, inputs, function in CASES]


def has_unbacked(env):
    return bool(env.asserts) or any(s.name[0] in "uz" for s in env.knowledge.ranges)


def test_predicted_shapes_equal_eagers_wherever_the_guards_pass(recorded):
    rng = random.Random(0)
    total = 0
    for name, inputs, function, env, fakes, outputs in recorded:
        if has_unbacked(env):
            continue
        admissible, wrong = violations(env, fakes, outputs, inputs, function, freeze(env), rng)
        assert wrong == 0, name
        total += admissible
    print(f"\nshapes: {total} admissible samples over {len(recorded)} programs, 0 predicted wrongly")
    assert total > 66 * SAMPLES


def test_without_guards_the_same_fuzz_finds_violations(recorded):
    rng = random.Random(0)
    found = 0
    for _, inputs, function, env, fakes, outputs in recorded:
        if env.guards and not has_unbacked(env):
            facts = freeze(env)
            bare = type(facts)(facts.symbols, facts.ranges, (), facts.hints)
            found += violations(env, fakes, outputs, inputs, function, bare, rng)[1]
    print(f"\nshapes: {found} violations without guards")
    assert found > 5


def test_the_hints_pass_their_own_check(recorded):
    for name, inputs, _, env, _, _ in recorded:
        if not has_unbacked(env):
            namespace = {}
            exec(check_source(freeze(env), tuple(f"a{k}" for k in range(len(inputs)))), namespace)
            assert namespace["check"](*(t for t, _ in inputs)), name


def test_programs_with_unbacked_sizes_run():
    torch.manual_seed(0)
    refused = []
    for name, inputs, function in UNBACKED:
        try:
            record(inputs, function)
        except Exception as error:
            refused.append((name, type(error).__name__))
    # the same two fail with torch's own environment
    assert len(refused) <= 2, refused


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_thawed_facts_are_the_facts(case):
    """What is frozen of an environment that was made of facts is these facts, and it answers what the first did."""
    _, inputs, function = case
    env, fakes, outputs = record(inputs, function)
    facts = freeze(env)
    mode, symbols = thawed(facts)
    assert freeze(mode.shape_env) == facts
    for number in (n for t in tree_leaves((fakes, outputs)) if isinstance(t, torch.Tensor) for n in t.shape):
        if isinstance(number, torch.SymInt) and not number.node.expr.is_Integer:
            again = symbols(str(number.node.expr), "size")
            assert (again.node.expr, again.node.hint) == (number.node.expr, number.node.hint)
    assert freeze(mode.shape_env) == facts
