"""Models of tensors and of torch's own functions, modules and contexts: the plug-in that records FX(torch)."""

from intarsia_tracer.tensors import breaks as breaks
from intarsia_tracer.tensors.plugin import Tensors
from intarsia_tracer.tensors.tensor import TensorValue
from intarsia_tracer.trust import trust

__all__ = ["TensorValue", "Tensors"]

trust("torch")
