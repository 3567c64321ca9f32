"""The pieces of written-out training loops: averaging, scaling, clipping, schedules, checkpoints, loaders, metrics."""

from __future__ import annotations

import copy
import importlib
import io

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.last(nn.functional.dropout(x.mean((2, 3)), 0.1, self.training))


def small():
    torch.manual_seed(0)
    return Small()


def images(n=6):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 1, 8, 8, generator=generator), torch.randint(0, 10, (8,), generator=generator))] * n


def compiled(model):
    return intarsia.compile(model, options=RAISE)


def original(model):
    return getattr(model, "_orig_mod", model)


def same(one, other, **tolerance):
    torch.testing.assert_close(original(one).state_dict(), original(other).state_dict(), **tolerance)


def train(model, optimizer, batches, schedule=None, scaler=None, average=None, clip=True):
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=scaler is not None):
            loss = nn.functional.cross_entropy(model(x), y)
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
        losses.append(loss.item())
    return losses


def whole_loop(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=6)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    torch.manual_seed(3)
    losses = train(model, optimizer, images(), schedule, average=average)
    return losses, average


def test_average_schedule_and_clipping(fresh):
    eager, fast = small(), compiled(small())
    expected, averaged = whole_loop(eager)
    actual, fast_averaged = whole_loop(fast)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    same(fast, eager, rtol=1e-3, atol=1e-5)
    same(fast_averaged.module, averaged.module, rtol=1e-3, atol=1e-5)
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
    x = images(1)[0][0]
    torch.testing.assert_close(fast_averaged.eval()(x), averaged.eval()(x), rtol=1e-3, atol=1e-5)
    torch.optim.swa_utils.update_bn(images(2), fast_averaged)


def test_grad_scaler(fresh):
    losses = []
    for make in (small, lambda: compiled(small())):
        model = make()
        torch.manual_seed(3)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        losses.append(train(model, torch.optim.AdamW(model.parameters(), 1e-2), images(), scaler=scaler))
        assert scaler.get_scale() == 256.0
    torch.testing.assert_close(losses[1], losses[0], rtol=2e-2, atol=2e-2)
    assert intarsia.stats().graphs >= 1 and intarsia.stats().frames_eager == 0


def test_checkpoint_and_resume_to_the_bit(fresh):
    def start():
        model = compiled(small())
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)

    torch.manual_seed(3)
    model, optimizer, schedule = start()
    train(model, optimizer, images(3), schedule)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in (model, optimizer, schedule)] + [torch.get_rng_state()], file)
    rest = train(model, optimizer, images(3), schedule)

    file.seek(0)
    intarsia.reset()
    *states, generator = torch.load(file)
    resumed = start()
    for part, state in zip(resumed, states, strict=True):
        part.load_state_dict(state)
    torch.set_rng_state(generator)
    again = train(resumed[0], resumed[1], images(3), resumed[2])
    assert again == rest
    for one, other in zip(resumed[0].state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


OPTIMIZERS = {
    "RAdam": lambda p: torch.optim.RAdam(p, 1e-2),
    "ASGD": lambda p: torch.optim.ASGD(p, 1e-2),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 1e-2),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2),
    "Rprop": lambda p: torch.optim.Rprop(p, 1e-2),
    "Muon": lambda p: torch.optim.Muon([x for x in p if x.dim() == 2], 1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_step_of_an_optimizer_is_compiled_or_is_eagers(fresh, name):
    """Whatever part of it is captured, the parameters are those of eager after five steps."""
    results = []
    for compile_step in (False, True):
        model = small()
        optimizer = OPTIMIZERS[name](list(model.parameters()))
        step = intarsia.compile(optimizer.step) if compile_step else optimizer.step
        for x, y in images(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            step()
        results.append(model)
    same(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keywords", [{}, {"norm_type": float("inf")}, {"foreach": True}, {"foreach": False}])
def test_clipping_is_one_graph(fresh, keywords):
    def gradients():
        parameters = [nn.Parameter(torch.zeros(3, 4, dtype=dtype)) for dtype in (torch.float32, torch.float64) * 2]
        for index, parameter in enumerate(parameters):
            parameter.grad = torch.full_like(parameter, index + 1.0)
        return parameters

    clip = intarsia.compile(nn.utils.clip_grad_norm_, options=RAISE, fullgraph=True)
    mine, eagers = gradients(), gradients()
    for _ in range(3):
        torch.testing.assert_close(clip(mine, 5.0, **keywords), nn.utils.clip_grad_norm_(eagers, 5.0, **keywords))
        for one, other in zip(mine, eagers, strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert intarsia.stats().graphs == 1


def test_lbfgs_with_a_compiled_model(fresh):
    results = []
    for make in (small, lambda: compiled(small())):
        model = make()
        model.eval()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        x, y = images(1)[0]

        def closure(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        results.append(model)
    same(results[1], results[0], rtol=1e-3, atol=1e-4)
    assert intarsia.stats().graphs >= 1


def standardise(x):
    return (x - x.mean()) / (x.std() + 1e-6)


transform = intarsia.compile(standardise, options=RAISE)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        row = transform(torch.arange(5.0) * (index + 1))
        return row, intarsia.stats().frames_compiled


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_call_a_compiled_transform(fresh, method):
    transform(torch.ones(5))  # in the parent, too: a forked worker inherits what was compiled
    loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context=method)
    rows, compiled_frames = map(torch.cat, zip(*loader, strict=True))
    torch.testing.assert_close(rows, torch.stack([standardise(torch.arange(5.0) * (i + 1)) for i in range(6)]))
    assert (compiled_frames >= 1).all()


def test_metrics(fresh):
    torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    results = []
    for make in (small, lambda: compiled(small())):
        metric = torchmetrics.classification.MulticlassAccuracy(10)
        model = make().eval()
        for x, y in images(3):
            metric.update(model(x), y)
        results.append(metric.compute())
    torch.testing.assert_close(results[1], results[0])
    update = intarsia.compile(torchmetrics.functional.classification.multiclass_accuracy)
    x, y = torch.randn(20, 5), torch.randint(0, 5, (20,))
    torch.testing.assert_close(update(x, y, 5), torchmetrics.functional.classification.multiclass_accuracy(x, y, 5))


def test_the_loop_of_timm(fresh):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    for part in ("loss", "optim", "scheduler", "utils"):
        importlib.import_module(f"timm.{part}")

    results = []
    for compile_it in (False, True):
        torch.manual_seed(0)
        model = timm.create_model("resnet10t", num_classes=10, in_chans=1)
        average = timm.utils.ModelEmaV3(model, decay=0.9)
        task = compiled(model) if compile_it else model
        optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=1e-2, weight_decay=0.05)
        scheduler, _ = timm.scheduler.create_scheduler_v2(optimizer, num_epochs=4, updates_per_epoch=2)
        loss_of, scaler = timm.loss.LabelSmoothingCrossEntropy(0.1), timm.utils.NativeScaler(device="cpu")
        losses = []
        generator = torch.Generator().manual_seed(1)
        for step in range(4):
            x, y = torch.randn(4, 1, 32, 32, generator=generator), torch.randint(0, 10, (4,), generator=generator)
            loss = loss_of(task(x), y)
            scaler(loss, optimizer, clip_grad=1.0, clip_mode="norm", parameters=timm.models.model_parameters(task))
            optimizer.zero_grad()
            average.update(model, step=step)
            scheduler.step_update(step)
            losses.append(loss.item())
        assert list(timm.utils.unwrap_model(task).state_dict()) == list(model.state_dict())
        results.append((losses, copy.deepcopy(average.module.state_dict())))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-2, atol=1e-3)
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0
