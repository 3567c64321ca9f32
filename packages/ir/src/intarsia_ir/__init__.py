"""What a program is: records that cross borders, the errors of every package, and the torch and aten dialects.

Importing this package alone imports no torch: it holds the records and the errors. The rest are submodules, each with
its own public names: `intarsia_ir.torch` and `intarsia_ir.aten` (verify, interpret, print_ir, parse_ir, the op
tables), `intarsia_ir.meta` (typed access to node metadata), `intarsia_ir.dtypes` (short names of element types) and
`intarsia_ir.effects` (what an op does besides computing).

Example:
    >>> from intarsia_ir import Origin
    >>> str(Origin("model.py", 12, "forward"))
    'model.py:12 in forward'
"""

from intarsia_ir.errors import (
    IntarsiaError,
    InternalError,
    InvalidArgumentError,
    NeedsFact,
    RuntimeFault,
    UnsupportedError,
    VerifyError,
)
from intarsia_ir.records import (
    AliasOfInput,
    AliasOfOutput,
    ArgumentSource,
    AttributeSource,
    Capture,
    CellSource,
    Constant,
    DictItemSource,
    Fresh,
    GlobalSource,
    GraphBreak,
    GuardKind,
    GuardRecord,
    InputItself,
    InputNumber,
    InputSpec,
    ItemSource,
    KernelSource,
    Launch,
    LinkableCode,
    ModuleSource,
    Origin,
    OutputSpec,
    PlainAttributeSource,
    Recorded,
    ReferentSource,
    Role,
    Signature,
    SizeExpression,
    SizeFact,
    SizeFacts,
    SizeSource,
    Source,
    Symbolic,
    Target,
    TensorFacts,
    TypeSource,
    ViewStep,
    Write,
)

__version__ = "0.1.0"

__all__ = [
    "AliasOfInput",
    "AliasOfOutput",
    "ArgumentSource",
    "AttributeSource",
    "Capture",
    "CellSource",
    "Constant",
    "DictItemSource",
    "Fresh",
    "GlobalSource",
    "GraphBreak",
    "GuardKind",
    "GuardRecord",
    "InputItself",
    "InputNumber",
    "InputSpec",
    "IntarsiaError",
    "InternalError",
    "InvalidArgumentError",
    "ItemSource",
    "KernelSource",
    "Launch",
    "LinkableCode",
    "ModuleSource",
    "NeedsFact",
    "Origin",
    "OutputSpec",
    "PlainAttributeSource",
    "Recorded",
    "ReferentSource",
    "Role",
    "RuntimeFault",
    "Signature",
    "SizeExpression",
    "SizeFact",
    "SizeFacts",
    "SizeSource",
    "Source",
    "Symbolic",
    "Target",
    "TensorFacts",
    "TypeSource",
    "UnsupportedError",
    "VerifyError",
    "ViewStep",
    "Write",
]
