"""Hugging Face's Trainer and Accelerate around compiled models."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

import intarsia

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.filterwarnings("ignore")


def language_model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # else the first loss logs a warning
    return model


def whole():
    return intarsia.compile(language_model(), options=RAISE)


def in_place():
    return intarsia.compile_module_(language_model(), options=RAISE)


def tokens():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 64, (24, 12), generator=generator)
    # a column that forward doesn't take: Trainer drops it by forward's signature
    return [{"input_ids": row, "labels": row, "unused": torch.ones(3)} for row in rows]


class Losses(transformers.TrainerCallback):
    def __init__(self):
        self.values = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.values.append(logs["loss"])


def train(model, folder, **keywords):
    losses = Losses()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        max_steps=6,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        gradient_accumulation_steps=2,
        disable_tqdm=True,
        seed=0,
        **keywords,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=tokens(), callbacks=[losses])
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    return losses.values, trainer


@pytest.mark.parametrize("make", [whole, in_place])
def test_trainer(fresh, tmp_path, make):
    expected, eager = train(language_model(), tmp_path / "eager")
    assert intarsia.stats().frames_seen == 0
    actual, _ = train(make(), tmp_path / "compiled")
    assert len(actual) == 6
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    counts = intarsia.stats()
    assert counts.graphs == 1 and counts.frames_eager == counts.fallbacks == 0
    saved = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "compiled" / "saved")
    for one, other in zip(saved.parameters(), eager.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def loop(model, **keywords):
    torch.manual_seed(0)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, **keywords)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    rows = torch.utils.data.DataLoader([{"input_ids": t["input_ids"], "labels": t["labels"]} for t in tokens()], 4)
    model, optimizer, rows, schedule = accelerator.prepare(model, optimizer, rows, schedule)
    losses = []
    for batch in rows:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, accelerator.unwrap_model(model)


@pytest.mark.parametrize("mixed_precision", ["no", "bf16"])
@pytest.mark.parametrize("make", [whole, in_place])
def test_accelerate(fresh, make, mixed_precision):
    expected, _ = loop(language_model(), mixed_precision=mixed_precision)
    actual, model = loop(make(), mixed_precision=mixed_precision)
    tolerance = 1e-4 if mixed_precision == "no" else 2e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    assert isinstance(model, transformers.GPT2LMHeadModel)
    counts = intarsia.stats()
    assert counts.graphs >= 1 and counts.frames_eager == counts.fallbacks == 0
