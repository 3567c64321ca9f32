"""The application: `uvicorn integration.serving.app:app`; what it serves is a file, or the model in eager."""

from __future__ import annotations

import os

import torch
from fastapi import FastAPI

from integration.serving.model import make_model

torch.set_num_threads(1)  # the workers are the parallelism


def served():
    """Return what answers: an artefact, which loads no compiler and no tracer, or the model as it is."""
    path = os.environ.get("SERVED_ARTEFACT")
    if not path:
        return make_model()
    import intarsia_export

    return intarsia_export.load(path)


program = served()
app = FastAPI()


@app.get("/worker")
async def worker() -> dict[str, int]:
    """Tell which process answers."""
    return {"pid": os.getpid()}


@app.post("/predict")
async def predict(rows: list[list[float]]) -> list[list[float]]:
    """Return a row of results for each row, however many there are."""
    with torch.no_grad():
        return program(torch.tensor(rows)).tolist()
