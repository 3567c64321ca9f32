"""The torch dialect: GraphModules as front ends give them to backends, calls of torch functions and tensor methods.

Example:
    >>> import torch
    >>> gm = parse_ir('''// dialect: torch 2
    ... graph(%x: f32[2]) {
    ...   # model.py:1 in forward
    ...   %0 = torch.relu(%x)  #1
    ...   return (%0,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1
    ... ''')
    >>> verify(gm)
    >>> interpret(gm, torch.tensor([1.0, -3.0]))
    (tensor([1., 0.]),)
"""

from intarsia_ir.torch.devices import check_devices, is_on_meta
from intarsia_ir.torch.interpret import interpret
from intarsia_ir.torch.normalise import Normalised, normalise
from intarsia_ir.torch.ops import (
    REGIONS,
    SCHEMA,
    SETTINGS,
    Row,
    communicates,
    effects,
    node_effects,
    row,
    set_grad_enabled,
    viewed_nodes,
    written_nodes,
)
from intarsia_ir.torch.subclass_gradients import Carriers, LinkedWrap, Reassembled, gradient_parts, taken_apart
from intarsia_ir.torch.subclasses import Applied, ViewedAsNested, Wrap, is_jagged, is_wrapper, name_lengths
from intarsia_ir.torch.text import constants_of, parse_ir, print_ir
from intarsia_ir.torch.transforms import TRANSFORMS, Transform, over_points
from intarsia_ir.torch.verify import verify

__all__ = [
    "REGIONS",
    "SCHEMA",
    "SETTINGS",
    "TRANSFORMS",
    "Applied",
    "Carriers",
    "LinkedWrap",
    "Normalised",
    "Reassembled",
    "Row",
    "Transform",
    "ViewedAsNested",
    "Wrap",
    "check_devices",
    "communicates",
    "constants_of",
    "effects",
    "gradient_parts",
    "interpret",
    "is_jagged",
    "is_on_meta",
    "is_wrapper",
    "name_lengths",
    "node_effects",
    "normalise",
    "over_points",
    "parse_ir",
    "print_ir",
    "row",
    "set_grad_enabled",
    "taken_apart",
    "verify",
    "viewed_nodes",
    "written_nodes",
]
