"""FX(kernels) as text and back; `intarsia_loops._text` has the form."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.fx as fx

from intarsia_loops._parse import parse_program
from intarsia_loops._text import buffer_type, item_text, program_text
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.program import Buffer, Kernel, Program

__all__ = ["kernel_text", "parse_ir", "print_ir"]


def print_ir(gm: fx.GraphModule | Program, *, made_by: str = "") -> str:
    """Return the text of a kernels program.

    Args:
        gm: FX(kernels), or the program itself.
        made_by: For the header: how the program was made.
    """
    return program_text(gm if isinstance(gm, Program) else from_fx(gm), "kernels", made_by)


def kernel_text(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str:
    """Return the text of one kernel after the layouts of its buffers; equal for equal kernels, whatever the process.

    Args:
        kernel: The kernel.
        buffers: Layouts; those of buffers that it keeps to itself may be missing.
    """
    layouts = [f"{name}: {buffer_type(buffer)}" for name, buffer in buffers.items()]
    return "\n".join([*layouts, item_text(kernel, buffers)])


def parse_ir(text: str, *, constants: Mapping[str, torch.Tensor] | None = None) -> fx.GraphModule:
    """Return the kernels program with this text; `parse_ir(print_ir(gm))` is the same program.

    Args:
        text: What `print_ir` gives.
        constants: Tensor of every constant; the text has only their types.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
    """
    return to_fx(parse_program(text, "kernels", constants))
