"""All programs, by kind."""

from __future__ import annotations

from integration.extend.programs import backends, devices, kernels, operators, passes, quantizers, subclasses

EXTENSIONS = [
    extension
    for module in (operators, kernels, backends, passes, devices, quantizers, subclasses)
    for extension in module.EXTENSIONS
]
