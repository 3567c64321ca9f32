"""Names that users see: what goes on after a break is the function's own, in tracebacks, profiles, graphs and dumps."""

import cProfile
import pstats
import traceback

import pytest
import torch

import intarsia


def broken(x):
    y = torch.sin(x) + pair(x.cos())
    return y / len(y.tolist()) + missing  # noqa: F821  (it is to raise)


def pair(x):
    print(end="")
    return x * 2


def test_a_traceback_names_the_function_and_its_break():
    line = broken.__code__.co_firstlineno
    try:
        intarsia.compile(broken)(torch.ones(3))
    except NameError as error:
        text = "".join(traceback.format_exception(error))
    assert f"line {line + 2}, in broken (after the break in line " in text
    assert not any(word in text for word in ("__resume", "__stack"))


def test_a_profile_names_it_too():
    compiled = intarsia.compile(lambda x: pair(x).sin())
    with cProfile.Profile() as profile:
        compiled(torch.ones(3))
    names = {name for _, _, name in pstats.Stats(profile).stats}
    assert any(name.startswith("<lambda> (after the break in line ") for name in names)
    assert not any("__resume" in name for name in names)


def test_graphs_and_dumps_have_no_names_of_ours(tmp_path):
    seen = []

    def backend(gm, examples):
        seen.append(gm.code)
        return gm

    def f(x):
        return torch.sin(x) + pair(x.cos())

    x = torch.ones(3)
    torch.testing.assert_close(intarsia.compile(f, backend=backend)(x), f(x))
    intarsia.compile(f, options={"dump_dir": tmp_path})(x)
    texts = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.*") if path.suffix != ".pt"]
    assert any("stack_0" in text for text in seen) and any("stack_0" in text for text in texts)
    for text in (*seen, *texts, *map(str, tmp_path.iterdir())):
        assert "__resume" not in text and "__stack" not in text


def test_a_variable_of_the_users_may_have_such_a_name():
    def f(x):
        stack_0 = x + 1
        return stack_0 * pair(x) - stack_0

    x = torch.ones(3)
    torch.testing.assert_close(intarsia.compile(f)(x), f(x))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("names", ["s0, s1, n, m", "s1, k0, k1, s0", "k0, k1, s0, s1", "u0, zuf0, k0, s0"])
def test_names_of_the_program_are_no_symbols(names, dynamic):
    """In a kernel, and in what calls it, the symbols of sizes and of numbers are variables as tensors are."""
    namespace = {}
    source = f"def f({names}):\n    a, b, n, m = {names}\n    return a * n + b * m + a.shape[0]\n"
    exec(compile(source, __file__, "exec"), namespace)
    fast = intarsia.compile(namespace["f"], fullgraph=True, dynamic=dynamic, options={"on_error": "raise"})
    for n in range(2, 6):
        inputs = torch.randn(n), torch.randn(n), n + 1, 3 * n
        torch.testing.assert_close(fast(*inputs), namespace["f"](*inputs))
    assert intarsia.stats().fallbacks == 0


def test_names_of_buffers_are_no_symbols():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("s0", torch.tensor([2.0]))
            self.k0 = torch.tensor([3.0])

        def forward(self, x, n):
            return x * self.s0 + self.k0 * n + x.shape[0]

    model = Scaled()
    fast = intarsia.compile(model, fullgraph=True, dynamic=True, options={"on_error": "raise"})
    for n in range(2, 5):
        torch.testing.assert_close(fast(torch.ones(n), n), model(torch.ones(n), n))
    assert intarsia.stats().fallbacks == 0
