"""The aten dialect: GraphModules whose calls are ATen overloads, as recorded or functional.

Example:
    >>> import torch
    >>> gm = parse_ir('''// dialect: aten 2
    ... graph(%x: f32[2]) {
    ...   # model.py:1 in forward
    ...   %0: f32[2] = aten.mul.Tensor(%x, 2)  #1
    ...   return (%0,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1
    ... ''')
    >>> verify(gm, functional=True)
    >>> interpret(gm, torch.tensor([1.0, 3.0]))
    (tensor([2., 6.]),)
"""

from intarsia_ir.aten.devices import accelerator_of, device_of, host_nodes
from intarsia_ir.aten.functional_forms import (
    form_of,
    functional_form,
    given_by,
    in_place,
    tensors_of,
    written_operands,
)
from intarsia_ir.aten.interpret import interpret
from intarsia_ir.aten.ops import (
    SCALAR_FUNCTIONS,
    SCHEMA,
    Operand,
    Row,
    checked_table,
    counts_from_storage,
    draws_random,
    effects,
    node_effects,
    overload_named,
    row,
    viewed_nodes,
    written_nodes,
)
from intarsia_ir.aten.text import constants_of, parse_ir, print_ir
from intarsia_ir.aten.verify import verify

__all__ = [
    "SCALAR_FUNCTIONS",
    "SCHEMA",
    "Operand",
    "Row",
    "accelerator_of",
    "checked_table",
    "constants_of",
    "counts_from_storage",
    "device_of",
    "draws_random",
    "effects",
    "form_of",
    "functional_form",
    "given_by",
    "host_nodes",
    "in_place",
    "interpret",
    "node_effects",
    "overload_named",
    "parse_ir",
    "print_ir",
    "row",
    "tensors_of",
    "verify",
    "viewed_nodes",
    "written_nodes",
    "written_operands",
]
