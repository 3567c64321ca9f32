"""Saving and restoring torch's random generators, around a graph that may have to run again."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["RandomState", "restore_random_state", "save_random_state"]


@dataclass(frozen=True, slots=True)
class RandomState:
    """States of torch's default generators.

    Args:
        cpu: u8[5056], the Mersenne Twister of the CPU.
        cuda: One u8[16] for each device, seed and offset; empty when CUDA isn't in use.
    """

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...] = ()


def save_random_state() -> RandomState:
    """Return the states of the generators as they are now; CUDA's only when CUDA has been initialised."""
    cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return RandomState(torch.default_generator.get_state(), tuple(generator.get_state() for generator in cuda))


def restore_random_state(state: RandomState) -> None:
    """Put the generators back to `state`."""
    torch.default_generator.set_state(state.cpu)
    for generator, saved in zip(torch.cuda.default_generators, state.cuda):
        generator.set_state(saved)
