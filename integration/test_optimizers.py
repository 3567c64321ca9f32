"""Steps of torch's own optimizers, compiled: eager's weights and state, however the rate changes from step to step."""

import copy

import pytest
import torch
import torch.nn as nn

import intarsia

RAISE = {"on_error": "raise"}
schedulers = torch.optim.lr_scheduler


@pytest.fixture(autouse=True)
def fresh():
    intarsia.reset()
    torch.manual_seed(0)
    yield
    intarsia.reset()


def make_model(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5)).to(dtype)


def set_rate(optimizer, step):
    """Give every step a rate of its own."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(0.05 / (step + 1))
        else:
            group["lr"] = 0.05 / (step + 1)


def train(make_optimizer, compile_step, steps=10, between=set_rate, dtype=torch.float32):
    """Return the parameters and the state after some steps, the gradients being eager's in both ways."""
    model = make_model(dtype)
    optimizer = make_optimizer(model)
    step = compile_step(optimizer)
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        model(torch.randn(4, 8, dtype=dtype)).square().mean().backward()
        between(optimizer, number)
        step()
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [p.detach() for p in model.parameters()], state


def compiled_method(optimizer):
    return intarsia.compile(optimizer.step, options=RAISE)


def compiled_lambda(optimizer):
    return intarsia.compile(lambda: optimizer.step(), options=RAISE)


def compare(make_optimizer, compile_step=compiled_method, versions=2, **keywords):
    """Compare with eager; one version makes the state, one takes any rate."""
    expected = train(make_optimizer, lambda optimizer: optimizer.step, **keywords)
    actual = train(make_optimizer, compile_step, **keywords)
    for ours, eagers in zip(actual, expected, strict=True):
        assert len(ours) == len(eagers)
        torch.testing.assert_close(ours, eagers, rtol=1e-6, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager, stats.extern_calls) == (0, 0, 0)
    assert stats.graphs <= versions and stats.kernels_generated > 0


OPTIMIZERS = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "sgd with momentum": lambda m: torch.optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "sgd foreach": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "sgd with a tensor": lambda m: torch.optim.SGD(m.parameters(), lr=torch.tensor(0.1), momentum=0.9),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.1, weight_decay=0.1),
    "adam foreach": lambda m: torch.optim.Adam(m.parameters(), lr=0.1, amsgrad=True, foreach=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1),
    "adamw one by one": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, foreach=False, maximize=True),
    "adamw foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, foreach=True),
    "adamw fused": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, fused=True),
    "adam fused": lambda m: torch.optim.Adam(m.parameters(), lr=0.1, amsgrad=True, weight_decay=0.1, fused=True),
    "sgd fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "adagrad fused": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1, lr_decay=0.1, fused=True),
    "adamw with a tensor": lambda m: torch.optim.AdamW(m.parameters(), lr=torch.tensor(0.1)),
}


@pytest.mark.parametrize("compile_step", [compiled_method, compiled_lambda])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_rates_take_two_versions(name, compile_step):
    compare(OPTIMIZERS[name], compile_step)


@pytest.mark.parametrize("name", ["NAdam", "Adagrad", "Adadelta", "Adamax"])
def test_other_optimizers(name):
    compare(lambda m: getattr(torch.optim, name)(m.parameters(), lr=0.01))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["RAdam", "ASGD"])
def test_steps_that_branch_on_their_counters(name, foreach):
    """Eager reads the counter, and takes another way from the sixth step on (RAdam), or from the second (ASGD)."""
    compare(lambda m: getattr(torch.optim, name)(m.parameters(), lr=0.01, weight_decay=0.1, foreach=foreach))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("how", ["plain", "decayed", "maximized", "bfloat16"])
def test_adafactor(how, foreach):
    """It takes the larger of norms and constants; its products of matrices are library calls."""
    keywords = {"decayed": {"weight_decay": 0.1}, "maximized": {"maximize": True, "d": 2.0}}.get(how, {})
    dtype = torch.bfloat16 if how == "bfloat16" else torch.float32

    def make(model):
        return torch.optim.Adafactor(model.parameters(), lr=0.05, foreach=foreach, **keywords)

    expected = train(make, lambda optimizer: optimizer.step, dtype=dtype)
    actual = train(make, compiled_method, dtype=dtype)
    tolerance = 2e-2 if how == "bfloat16" else 1e-5
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and 0 < stats.graphs <= 2


def test_adafactor_refuses_what_has_no_elements():
    empty = torch.zeros(0, 3, requires_grad=True)
    empty.grad = torch.zeros(0, 3)
    optimizer = torch.optim.Adafactor([empty])
    for step in (optimizer.step, intarsia.compile(lambda: optimizer.step())):
        with pytest.raises(ZeroDivisionError):
            step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adagrad"])
def test_fused_steps_of_half_types(name, dtype):
    """Each is computed in float32 and rounded once, as eager's kernel does it."""

    def make(model):
        return getattr(torch.optim, name)(model.parameters(), lr=0.05, fused=True)

    expected = train(make, lambda optimizer: optimizer.step, dtype=dtype)
    torch.testing.assert_close(train(make, compiled_method, dtype=dtype), expected, rtol=2e-2, atol=2e-2)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager, stats.extern_calls) == (0, 0, 0) and stats.graphs <= 2


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_steps_with_a_scaler(name):
    """The scaler hands its scale and what it found to the step, which divides, or does nothing."""
    found = []
    for way in ("eager", "compiled"):
        model = make_model()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.05, fused=True)
        if way == "compiled":
            optimizer.step = compiled_method(optimizer)
        scaler, losses = torch.amp.GradScaler("cpu", init_scale=8.0), []
        for number in range(6):
            torch.manual_seed(number)
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            scaler.scale(loss).backward()
            if number == 3:
                model[0].weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        assert scaler.get_scale() == 4.0  # a step was skipped
        found.append([*losses, *[p.detach() for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and 0 < stats.graphs <= 3


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_and_its_step_in_one_function(fused):
    found = []
    for way in ("eager", "compiled"):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

        def finish():
            scaler.step(optimizer)
            scaler.update()

        step = intarsia.compile(finish, options=RAISE) if way == "compiled" else finish
        for number in range(5):
            torch.manual_seed(number)
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(4, 8)).square().mean()).backward()
            if number == 3:
                model[0].weight.grad[0, 0] = float("inf")
            step()
        assert scaler.get_scale() == 4.0  # a step was skipped
        found.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "Rprop", "Adamax"])
def test_parameters_without_dimensions(name, foreach):
    """Such as the scale of a contrastive loss."""
    found = []
    for way in ("eager", "compiled"):
        scale, weight = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(3))
        optimizer = getattr(torch.optim, name)([scale, weight], lr=0.1, foreach=foreach)
        step = compiled_method(optimizer) if way == "compiled" else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            (scale**2 + (weight * scale).sum()).backward()
            step()
        found.append([scale.detach(), weight.detach(), *(s["step"] for s in optimizer.state.values())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and stats.graphs <= 2


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon():
    """Its products of matrices are library calls; the rate goes beside an update of a half type."""

    def make(model):
        return torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.01)

    expected = train(make, lambda optimizer: optimizer.step)
    torch.testing.assert_close(train(make, compiled_method), expected, rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and 0 < stats.graphs <= 2


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_types(dtype, foreach):
    compare(lambda m: torch.optim.AdamW(m.parameters(), foreach=foreach), dtype=dtype)


def test_groups_of_parameters():
    def make(model):
        first, _, last = model
        groups = [
            {"params": [first.weight, last.weight], "weight_decay": 0.1},
            {"params": [first.bias, last.bias], "weight_decay": 0.0, "lr": 0.3},
        ]
        return torch.optim.AdamW(groups, lr=0.1)

    compare(make)


@pytest.mark.parametrize("before", [True, False], ids=["wrapped before", "wrapped after"])
@pytest.mark.parametrize(
    "make_scheduler",
    [
        lambda o: schedulers.CosineAnnealingLR(o, 20),
        lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20),
        lambda o: schedulers.LambdaLR(o, lambda step: 1 / (step + 1)),
    ],
    ids=["cosine", "one cycle", "lambda"],
)
def test_schedulers(make_scheduler, before):
    """A scheduler wraps the step of its optimizer, and changes rates (one of them momenta, too) after every step."""
    found = {}

    def make(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if before:
            found["scheduler"] = make_scheduler(optimizer)
        return optimizer

    def compile_step(optimizer):
        step = compiled_method(optimizer) if intarsia_runs else optimizer.step
        if not before:
            found["scheduler"] = make_scheduler(optimizer)

        def both():
            optimizer._opt_called = True  # where the scheduler came later, the compiled step doesn't know of it
            step()
            found["scheduler"].step()

        return both

    intarsia_runs = False
    expected = train(make, compile_step, between=lambda optimizer, number: None)
    intarsia_runs = True
    actual = train(make, compile_step, between=lambda optimizer, number: None)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and stats.graphs <= 3


@pytest.mark.parametrize("foreach", [False, True])
def test_momenta_that_change(foreach):
    """The step asks whether the momentum is zero: only that answer is relied on."""

    def between(optimizer, number):
        set_rate(optimizer, number)
        optimizer.param_groups[0]["momentum"] = 0.0 if number == 8 else 0.9 - number / 50

    compare(
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=foreach), between=between, versions=3
    )


def test_a_parameter_without_a_gradient_is_left_alone():
    def between(optimizer, number):
        set_rate(optimizer, number)
        optimizer.param_groups[0]["params"][1].grad = None

    compare(lambda m: torch.optim.AdamW(m.parameters()), between=between)


def test_state_that_was_loaded():
    def make(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        fresh_one = torch.optim.AdamW(model.parameters(), lr=0.2)
        fresh_one.load_state_dict(saved)
        return fresh_one

    compare(make)


def test_hooks_of_the_step_run():
    count = torch.zeros(())

    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda *args: count.add_(1))
        return optimizer

    compare(make)
    assert count == 20


def test_clipping_and_step_in_one_function():
    """Clipping reads norms of all gradients; nothing leaves the graph between it and the step."""

    def compile_both(wrap):
        def compile_step(optimizer):
            def clipped():
                norm = nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.1)
                optimizer.step()
                return norm

            return wrap(clipped)

        return compile_step

    def make(model):
        return torch.optim.AdamW(model.parameters(), lr=0.1)

    expected = train(make, compile_both(lambda f: f))
    actual = train(make, compile_both(lambda f: intarsia.compile(f, options=RAISE)))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and stats.graphs <= 2


def test_a_whole_step_of_training_around_backward():
    """The forward pass is compiled, the step is compiled; backward is eager's call between them."""
    found = []
    for way in ("eager", "compiled"):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters())
        call, step = model, optimizer.step
        if way == "compiled":
            call, step = intarsia.compile(model, options=RAISE), compiled_method(optimizer)
        losses = []
        for number in range(6):
            torch.manual_seed(number)
            optimizer.zero_grad()
            loss = call(torch.randn(4, 8)).square().mean()
            loss.backward()
            set_rate(optimizer, number)
            step()
            losses.append(loss.detach())
        found.append([*losses, *[p.detach() for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and stats.graphs <= 3


def test_a_whole_step_of_training_in_one_function():
    """Gradients are cleared, both passes run, the optimizer steps at a scheduled rate."""
    found = []
    for way in ("eager", "compiled"):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        scheduler = schedulers.CosineAnnealingLR(optimizer, 20)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        call = intarsia.compile(step, options=RAISE) if way == "compiled" else step
        losses = []
        for number in range(10):
            torch.manual_seed(number)
            losses.append(call(torch.randn(4, 8)).detach())
            scheduler.step()
        found.append([*losses, *[p.detach() for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    stats = intarsia.stats()
    assert (stats.fallbacks, stats.frames_eager) == (0, 0) and stats.graphs <= 3


def test_lbfgs_is_eagers_around_a_compiled_closure():
    """It goes on or ends by the losses, numbers in Python; what it calls for them is compiled."""
    intarsia.reset()
    found = []
    for way in ("eager", "compiled"):
        model = make_model()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(torch.ones(4, 8)) - 1).square().mean()
            loss.backward()
            return loss

        step = compiled_method(optimizer) if way == "compiled" else optimizer.step
        losses = [step(closure).item() for _ in range(3)]
        found.append([losses, [p.detach() for p in model.parameters()]])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert intarsia.stats().graphs >= 1 and intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("name", ["AdamW", "RAdam", "ASGD"])
@pytest.mark.parametrize("foreach", [False, True])
def test_a_capturable_step_on_a_cpu_raises_as_in_eager(foreach, name):
    optimizer = getattr(torch.optim, name)(make_model().parameters(), capturable=True, foreach=foreach)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    with pytest.raises(AssertionError) as expected:
        optimizer.step()
    with pytest.raises(AssertionError) as actual:
        intarsia.compile(optimizer.step)()
    assert str(actual.value) == str(expected.value)
