"""Two hundred steps of small real tasks (a table, images, text) on data that packages ship: eager's curve, compiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}
STEPS = 200


def table():
    """Tell tumours apart by thirty measurements."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    values, labels = datasets.load_breast_cancer(return_X_y=True)
    x = torch.tensor(values, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    model = nn.Sequential(nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    return model, x, torch.tensor(labels), 32


def digits():
    """Read handwritten digits of eight by eight pixels."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    values, labels = datasets.load_digits(return_X_y=True)
    x = torch.tensor(values, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    return model, x, torch.tensor(labels), 32


class Reader(nn.Module):
    """A causal transformer of one layer over characters."""

    def __init__(self, length):
        super().__init__()
        self.characters, self.places = nn.Embedding(128, 32), nn.Parameter(torch.randn(length, 32) * 0.02)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(32, 128)

    def forward(self, tokens):
        x = self.characters(tokens) + self.places
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layer(x, src_mask=mask, is_causal=True)).transpose(1, 2)


def text():
    """Guess the next character of Python's own manual, which is part of its library."""
    from pydoc_data import topics

    written = "".join(c for c in "".join(topics.topics.values()) if ord(c) < 128)[:60_000]
    tokens = torch.tensor([ord(c) for c in written])
    x = tokens[: len(tokens) // 33 * 33].reshape(-1, 33)
    return Reader(32), x[:, :-1], x[:, 1:], 16


TASKS = {"table": table, "digits": digits, "text": text}


def curve(name, *, compiled):
    """Return the losses of a run and what the last ten are on average."""
    torch.manual_seed(0)
    model, x, y, batch = TASKS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    call = intarsia.compile(model, options=RAISE) if compiled else model
    step = intarsia.compile(optimizer.step, options=RAISE) if compiled else optimizer.step
    optimizer._opt_called = True  # the schedule can't see that the compiled step was
    losses = []
    for _ in range(STEPS):
        rows = torch.randint(0, len(x), (batch,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(call(x[rows]), y[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("name", TASKS)
def test_the_curve_is_eagers(fresh, name):
    """What rounds otherwise grows over two hundred steps; the loss falls by far more than that."""
    expected, actual = curve(name, compiled=False), curve(name, compiled=True)
    assert sum(expected[-10:]) < 0.8 * sum(expected[:10])
    torch.testing.assert_close(actual, expected, rtol=5e-3, atol=5e-3)
    counts = intarsia.stats()
    assert counts.graphs <= 5 and counts.frames_eager == counts.fallbacks == 0
