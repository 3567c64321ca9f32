"""Running a captured graph as it is, operation by operation, so that a failing operation can be run again in eager.

Nothing is compiled, so the graph writes into its inputs as it goes. What it is known to write is saved before, and
put back when an operation raises: then `RuntimeFault` may send the frame back to eager, which raises the program's own
error in its own place, after the side effects that come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir.errors import RuntimeFault
from intarsia_ir.torch import SETTINGS

__all__ = ["raises_as_written", "run_as_written"]


def run_as_written(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs a FX(torch) graph in eager, and leaves everything as it was when that raises.

    Args:
        gm: The graph.
        inputs: The fake inputs that it was captured with; a version above zero marks the ones it writes.

    Returns:
        A function of the inputs. It raises RuntimeFault, with its cause, when an operation raises.

    Example:
        >>> import torch.fx
        >>> graph = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        >>> run_as_written(graph, [torch.ones(1)])(torch.tensor([-1.0]))
        tensor([1.])
    """
    written = [number for number, value in enumerate(inputs) if _is_written(value)]

    def run(*arguments: Any) -> Any:
        saved = _Saved([arguments[number] for number in written])
        try:
            return gm.forward(*arguments)
        except Exception as error:
            saved.put_back()
            what = f"the graph raised {type(error).__name__}: {error}"
            raise RuntimeFault(what, code="runtime.fault", inputs=arguments) from error

    return run


def raises_as_written(gm: fx.GraphModule) -> Callable[..., bool]:
    """Return a function that tells whether a FX(torch) graph raises for its inputs.

    It runs on copies and puts the modes of the thread back, but it advances random generators.

    Example:
        >>> import torch.fx
        >>> raises = raises_as_written(torch.fx.symbolic_trace(lambda x, i: x[i]))
        >>> raises(torch.ones(2), torch.tensor([1])), raises(torch.ones(2), torch.tensor([2]))
        (False, True)
    """

    def raises(*arguments: Any) -> bool:
        saved = _Saved([])
        try:
            gm.forward(*(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments))
        except Exception:  # whatever it is, eager raises it again for the caller
            return True
        finally:
            saved.put_back()
        return False

    return raises


def _is_written(value: Any) -> bool:
    # an inference tensor keeps no version, so it counts as written
    return isinstance(value, torch.Tensor) and (value.is_inference() or value._version > 0)


class _Saved:
    """Contents and layouts of tensors, and the modes that regions of a graph change."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.layouts: list[Any] = [(t, t.shape, t.stride(), t.storage_offset()) for t in tensors]
        self.contents = [(t.untyped_storage(), t.untyped_storage().clone()) for t in tensors]
        self.grad = torch.is_grad_enabled()
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")]
        self.settings = [(setter, getter()) for setter, getter in SETTINGS.items()]
        self.nesting = _nesting()

    def put_back(self) -> None:
        """Make everything as it was."""
        with torch.no_grad():
            for (tensor, shape, strides, offset), (storage, content) in zip(self.layouts, self.contents):
                storage.copy_(content)
                tensor.set_(storage, offset, shape, strides)
        torch._C._set_grad_enabled(self.grad)
        for setter, value in self.settings:
            setter(value)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        while _nesting() > self.nesting:
            torch.autocast_decrement_nesting()


def _nesting() -> int:
    level = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return int(level)
