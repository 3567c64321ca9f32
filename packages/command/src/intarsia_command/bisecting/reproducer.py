"""A script that shows a fault: the operations as Python, their inputs, and a comparison with eager."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from intarsia_command.bisecting.cases import Case
from intarsia_command.bisecting.search import SAID, Culprit

__all__ = ["reproducer"]

WRITTEN_OUT = 64  # elements
INDENT = "    "

TEXT = '''"""Found by `intarsia bisect`: {headline}.

{explained}
"""

import torch
from torch import device, inf, nan  # noqa: F401  (graphs name them)
{imports}

def program({parameters}):
{body}


def program_inputs():
    torch.manual_seed(0)
{inputs}


if __name__ == "__main__":
    import intarsia

    compiled = intarsia.compile(program, options={{"on_error": "raise"}})
    with torch.set_grad_enabled({train}):
        torch.testing.assert_close(list(compiled(*program_inputs())), list(program(*program_inputs())), equal_nan=True)
    print("equal to eager")
'''


def reproducer(case: Case, culprit: Culprit, fails: Callable[[Case], bool]) -> str:
    """Return the text of a script with functions `program` and `program_inputs`.

    Args:
        case: What fails; inputs are drawn anew where it still does, and written out where it doesn't.
        culprit: What is at fault, for the docstring.
        fails: Whether a case does.
    """
    code = case.graph_module.graph.python_code("self")
    parameters, body = _function(code.src)
    drawn = replace(case, inputs=tuple(_drawn(x) for x in case.inputs))
    drawn = replace(drawn, examples=drawn.inputs)
    lines = [_draw_text(x) for x in case.inputs] if fails(drawn) else [_value_text(x) for x in case.inputs]
    imports = sorted(_import_of(name, value) for name, value in code.globals.items() if _is_imported(name, value))
    attributes = [_attribute_line(case, name) for name in sorted(set(re.findall(r"\bself\.([\w.]+)", body)))]
    body = re.sub(r"\bself\.([\w.]+)", lambda found: f"self_{found[1].replace('.', '_')}", body)
    return TEXT.format(
        headline=str(culprit).splitlines()[0],
        explained="\n".join(culprit.wrong[:SAID]).replace("\\", "/").replace('"""', "'''"),
        imports="".join(f"{line}\n" for line in imports if line),
        parameters=", ".join(parameters),
        body=textwrap.indent("\n".join([*attributes, body]), INDENT),
        inputs=f"{INDENT}return (\n" + "".join(f"{INDENT * 2}{line},\n" for line in lines) + f"{INDENT})",
        train=case.train,
    )


def _function(source: str) -> tuple[list[str], str]:
    """Return the parameters and the body of the function that FX wrote, without its annotations and its clean-up."""
    start = source.index("def forward")
    end = source.index("\n", start)
    head, body = source[start:end].split("->")[0].rstrip(" :"), source[end + 1 :]
    parameters = re.search(r"def forward\(self(?:, )?(.*)\)", head)
    names = [p.split(":")[0].split("=")[0].strip() for p in (parameters[1] if parameters else "").split(",")]
    lines = [re.sub(r";\s+\w+ = None(?:;\s*\w+ = None)*", "", line) for line in body.splitlines()]
    lines = [re.sub(r"(\w+) : [^=]+ = ", r"\1 = ", line) for line in lines]
    return [n for n in names if n], textwrap.dedent("\n".join(line for line in lines if line.strip()))


def _is_imported(name: str, value: Any) -> bool:
    return name not in ("torch", "device", "inf", "nan", "fx_pytree", "pytree", "NoneType")


def _import_of(name: str, value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    own = getattr(value, "__name__", "")
    if type(value).__name__ == "module":
        return f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
    return f"from {module} import {own} as {name}" if module and own.isidentifier() else ""


def _attribute_line(case: Case, name: str) -> str:
    """Return the line that makes what a graph has as an attribute; in the body, the name has underscores for dots."""
    value: Any = case.graph_module
    for part in name.split("."):
        value = getattr(value, part)
    return f"self_{name.replace('.', '_')} = {_value_text(value)}"


def _drawn(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    torch.manual_seed(0)
    made = eval(_draw_text(x), {"torch": torch})
    assert isinstance(made, torch.Tensor)
    return made


def _draw_text(x: Any) -> str:
    """Return an expression for random numbers of the same type and layout; numbers are what they are."""
    if not isinstance(x, torch.Tensor):
        return repr(x)
    shape, dtype = tuple(x.shape), str(x.dtype)
    if x.dtype is torch.bool:
        text = f"torch.rand({shape}) > 0.5"
    elif x.dtype.is_floating_point or x.dtype.is_complex:
        text = f"torch.randn({shape}, dtype={dtype})"
    else:
        text = f"torch.randint(0, 4, {shape}, dtype={dtype})"
    return _laid_out(text, x)


def _value_text(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return repr(x)
    if x.numel() <= WRITTEN_OUT and not x.dtype.is_complex:
        values = re.sub(r"\b(inf|nan)\b", r"float('\1')", repr(x.detach().tolist()))
        return _laid_out(f"torch.tensor({values}, dtype={x.dtype}).reshape({tuple(x.shape)})", x)
    buffer = io.BytesIO()
    torch.save(x.detach().contiguous(), buffer)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    load = "torch.load(__import__('io').BytesIO(__import__('base64').b64decode(TEXT)))".replace("TEXT", repr(encoded))
    return _laid_out(load, x)


def _laid_out(text: str, x: torch.Tensor) -> str:
    if not x.is_contiguous():
        text = f"torch.empty_strided({tuple(x.shape)}, {x.stride()}, dtype={x.dtype}).copy_({text})"
    return f"({text}).requires_grad_()" if x.requires_grad else text
