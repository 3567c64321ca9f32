"""What a program is: records that cross borders and the errors of every package.

The dialects are submodules (`intarsia_ir.torch`, `intarsia_ir.aten`); importing this package alone does not import torch.

Example:
    >>> from intarsia_ir import Origin
    >>> str(Origin("model.py", 12, "forward"))
    'model.py:12 in forward'
"""

__version__ = "0.1.0"
