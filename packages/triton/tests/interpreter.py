"""Run emitted modules in Triton's interpreter on CPU tensors, with bounds checked and libdevice by NumPy."""

import importlib.util
import itertools
import math

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.language.extra import libdevice

from intarsia_ir.dtypes import dtype_from_name

_numbers = itertools.count()
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
NUMPY = {
    "expm1": np.expm1, "log10": np.log10, "log1p": np.log1p, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erfc": lambda a: _erfc(a).astype(a.dtype), "trunc": np.trunc, "rint": np.rint,
    "fmod": np.fmod, "pow": np.power, "copysign": np.copysign, "atan2": np.arctan2, "hypot": np.hypot,
    "fast_dividef": np.divide,
}  # fmt: skip


def _shim(function):
    def call(*args, **_):
        data = np.broadcast_arrays(*(a.handle.data for a in args))
        with np.errstate(all="ignore"):
            result = function(*data)
        return tl.tensor(interpreter.TensorHandle(result.astype(data[0].dtype), args[0].dtype.scalar), args[0].type)

    return call


def install():
    """Give libdevice functions a meaning in the interpreter, and make an access outside a buffer an error."""
    for name, function in NUMPY.items():
        setattr(libdevice, name, _shim(function))
    builder = interpreter.InterpreterBuilder
    # assertions hold here as well, but for those against overflow, without which kernels for a GPU are compiled
    options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
    if not hasattr(builder, "_unchecked"):
        builder._unchecked = (builder.create_masked_load, builder.create_masked_store)
        builder.create_masked_load = _checked(builder._unchecked[0], 1)
        builder.create_masked_store = _checked(builder._unchecked[1], 2)
        builder.create_atomic_rmw = _checked_atomic(builder.create_atomic_rmw)
        interpreter._convert_float = _rounding(interpreter._convert_float)


def _rounding(function):
    """Round to bf16, as hardware does; the interpreter cuts bits off."""

    def call(data, source, target, mode):
        if source != tl.float32 or target != tl.bfloat16:
            return function(data, source, target, mode)
        rounded = torch.from_numpy(np.array(data, dtype=np.float32)).to(torch.bfloat16)
        return rounded.view(torch.int16).numpy().view(np.uint16)

    return call


def _checked(function, mask_position):
    def call(self, pointers, *rest, **kwargs):
        addresses, mask = np.broadcast_arrays(pointers.data, rest[mask_position - 1].data)
        for address in addresses[mask.astype(bool)]:
            if not any(low <= address < high for low, high in self._ranges):
                raise IndexError(f"access at {address} outside of {self._ranges}")
        return function(self, pointers, *rest, **kwargs)

    return call


def _checked_atomic(function):
    def call(self, operation, pointers, value, mask, *rest):
        def same(self, pointers, value, mask):
            return function(self, operation, pointers, value, mask, *rest)

        return _checked(same, 2)(self, pointers, value, mask)

    return call


def run(source, buffers, values, tmp_path, sizes=None):
    """Launch everything in `source`; returns buffer -> tensor for all buffers. `sizes` gives symbols' numbers."""
    sizes = sizes or {}
    names = {repr(symbol): n for symbol, n in sizes.items()}
    known = {next(iter(symbol.atoms())): n for symbol, n in sizes.items()}
    install()
    path = tmp_path / f"emitted_{next(_numbers)}.py"
    path.write_text(source.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    memory = dict(values)
    buffers = {**buffers, **dict(source.scratch)}
    for launch in source.launches:
        for name in launch.buffers:
            memory.setdefault(name, empty(buffers[name], known).fill_(0 if name == source.counters else 1))
        # on the builder: every copy of this module patches the same one
        interpreter.InterpreterBuilder._ranges = [_range(t) for t in memory.values()]
        grid = tuple(eval(text, dict(names)) for text in launch.grid)
        if all(grid):
            arguments = [*(memory[b] for b in launch.buffers), *(names[size] for size in launch.sizes)]
            getattr(module, launch.entry)[grid](*arguments)
    if source.counters:
        assert not memory[source.counters].any(), "a counter isn't put back to 0"
    return memory


def empty(buffer, known):
    shape, strides = ([n.value(known) for n in numbers] for numbers in (buffer.shape, buffer.strides))
    # filled, so that an element nobody wrote is the same wrong value in every run
    return torch.empty_strided(shape, strides, dtype=dtype_from_name(buffer.dtype)).fill_(1)


def _range(tensor):
    start = tensor.untyped_storage().data_ptr()
    return start, start + tensor.untyped_storage().nbytes()
