"""Lightning fits modules compiled in each of four ways as it fits them uncompiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import intarsia

lightning = pytest.importorskip("lightning", reason="lightning is not installed")

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(lightning.LightningModule):
    def __init__(self, *, configured: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.losses: list[float] = []
        self.configured = configured

    def configure_model(self):
        if self.configured and not hasattr(self.net, "_orig_mod"):
            self.net = intarsia.compile(self.net, options=RAISE)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def whole():
    return intarsia.compile(Classifier(), options=RAISE)


def in_configure_model():
    return Classifier(configured=True)


def step():
    model = Classifier()
    model.training_step = intarsia.compile(model.training_step, options=RAISE)
    return model


def in_place():
    return intarsia.compile_module_(Classifier(), options=RAISE)


def fit(make, folder):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
    model = make()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=0.5,
        default_root_dir=folder,
    )
    trainer.fit(model, data, data)
    trainer.save_checkpoint(folder / "end.ckpt")
    return getattr(model, "_orig_mod", model)


@pytest.mark.parametrize("make", [whole, in_configure_model, step, in_place])
def test_fit(fresh, tmp_path, make):
    expected = fit(Classifier, tmp_path)
    assert intarsia.stats().frames_seen == 0
    actual = fit(make, tmp_path)
    torch.testing.assert_close(actual.losses, expected.losses)
    assert len(actual.losses) == 8
    for one, other in zip(actual.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    counts = intarsia.stats()
    assert counts.graphs >= 2 and counts.frames_eager == counts.fallbacks == 0
    state = torch.load(tmp_path / "end.ckpt", weights_only=False)["state_dict"]
    assert {key.replace("_orig_mod.", "") for key in state} == set(expected.state_dict())
    intarsia.compile(Classifier()).load_state_dict(expected.state_dict())
