"""What the running program's groups of processes are."""

from __future__ import annotations

import torch.distributed

__all__ = ["group_size"]


def group_size(name: str) -> int:
    """Return how many processes are in the group of this name; 2 where this process has none: it reads a text.

    Example:
        >>> group_size("a group of another program")
        2
    """
    if not torch.distributed.is_available():
        return 2
    groups = torch.distributed.distributed_c10d._world.pg_names
    return next((group.size() for group, registered in groups.items() if registered == name), 2)
