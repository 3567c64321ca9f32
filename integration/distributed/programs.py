"""Programs of a few ranks that exchange data while they compute: `fn(rank, x)`, with `x` of 4 by 4 floats.

Values are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

__all__ = ["BROKEN", "GRADED", "WHOLE"]


def reduced(rank, x):
    y, z = x * 2, x + rank
    dist.all_reduce(y)
    dist.all_reduce(z, op=dist.ReduceOp.MAX)
    return y - z, dist.get_rank() + dist.get_world_size()


def reduced_input(rank, x):
    dist.all_reduce(x, group=dist.group.WORLD)
    return x * (rank + 1)


def averaged(rank, x):
    gradients = [x * 2, x + rank, x - rank]
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return sum(gradients)


def sent_to_all(rank, x):
    y = x + rank
    dist.broadcast(y, src=1)
    return y * 2


def gathered(rank, x):
    outputs = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, x * (rank + 1))
    return torch.stack(outputs).cumsum(0)


def gathered_in_place(rank, x):
    whole = torch.zeros(dist.get_world_size() * 4, 4)
    mine = whole[4 * rank : 4 * rank + 4]
    mine.copy_(x * (rank + 1))
    dist.all_gather_into_tensor(whole, mine)
    return whole * 2


def scattered(rank, x):
    part = torch.empty(4 // dist.get_world_size(), 4)
    dist.reduce_scatter_tensor(part, x * (rank + 1))
    return part + 1


def exchanged(rank, x):
    output = torch.empty_like(x)
    dist.all_to_all_single(output, x + 10 * rank)
    return output * 2


def forgotten(rank, x):
    """Nobody reads what comes, and the others are there nevertheless."""
    y = x * 2
    dist.all_reduce(y)
    return x + rank


def twice(rank, x):
    y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    return y + functional.all_reduce(x * 2, "sum", dist.group.WORLD)


def of_functions(rank, x):
    world = dist.group.WORLD
    y = functional.all_gather_tensor(x * (rank + 1), 0, world)
    z = functional.reduce_scatter_tensor(y * (rank + 1), "sum", 0, world)
    return functional.all_to_all_single(z * 2, None, None, world) - x


def of_columns(rank, x):
    world = dist.group.WORLD
    part = functional.reduce_scatter_tensor(x * (rank + 1), "sum", 1, world)
    return functional.all_gather_tensor(part * 3, 1, world)


def of_a_mesh(rank, x):
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)) if MESHES == [] else MESHES[0]
    y = x + rank
    dist.all_reduce(y, group=mesh.get_group())
    return y * mesh.size() + functional.all_reduce(x, "sum", mesh)


def uneven(rank, x):
    """Ranks compute otherwise between what they do together."""
    y = x * 2
    if rank == 0:
        y = (y + x.t()).relu() + x.amax(0)
    dist.all_reduce(y)
    z = x + y if rank == 0 else x * y
    dist.broadcast(z, src=1)
    return z


def sent_by_one(rank, x):
    return functional.broadcast(x * rank, 1, dist.group.WORLD) + x


def asynchronous(rank, x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x - rank
    work.wait()
    return y + z


def gathered_meanwhile(rank, x):
    outputs = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    works = [dist.all_gather(outputs, x + rank, async_op=True), dist.broadcast(x, src=0, async_op=True)]
    z = x.new_ones(4, 4) - rank
    done = [work.wait() for work in works]
    return torch.stack(outputs) + z, x + 1, all(done), works[0].is_completed()


def never_waited_for(rank, x):
    """What is written is there behind a barrier of gloo, which comes after it."""
    y = x * (rank + 1)
    dist.all_reduce(y, async_op=True)
    dist.barrier()
    return y + 1


def waited_for_later(rank, x):
    y = x * (rank + 1)
    work = dist.all_reduce(y, async_op=True)
    dist.barrier()
    z = x - 1
    work.wait()
    return y + z


def passed_on(rank, x):
    y = x * 2 + rank
    source = None
    if rank == 0:
        dist.send(y, 1)
    elif rank == 1:
        y = torch.empty_like(x)
        source = dist.recv(y, 0)
    return y + 1, source


def passed_around(rank, x):
    """Each sends to the next one, with what it received added, in turn: an order that nothing may change."""
    ranks, total = dist.get_world_size(), x * (rank + 1)
    before = torch.empty_like(x)
    if rank > 0:
        dist.recv(before, group_src=rank - 1, group=dist.group.WORLD, tag=3)
        total += before
    if rank < ranks - 1:
        dist.send(total, rank + 1, tag=3)
    dist.broadcast(total, ranks - 1)
    return total - x


def passed_meanwhile(rank, x):
    """What is sent is what was there when the sending began; what comes is there behind the wait."""
    other = 1 - rank
    mine, theirs = x * 3 + rank, torch.zeros(4, 4)
    works = [dist.isend(mine, other), dist.irecv(theirs, other)]
    y = x.square() - rank
    done = [work.wait() for work in works]
    mine += 1
    return theirs + y, mine, done


def swapped(rank, x):
    other = 1 - rank
    halves = x.chunk(2)
    theirs = [torch.empty_like(half) for half in halves]
    sends = [dist.P2POp(dist.isend, half.contiguous() * (rank + 1), other) for half in halves]
    operations = [*sends, *(dist.P2POp(dist.irecv, half, other) for half in theirs)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return torch.cat(theirs) + x


def sent_beside_sums(rank, x):
    """Collectives stay on their side of what one sends to another."""
    y, z = x * 2, x + rank
    dist.all_reduce(y)
    received = torch.empty_like(x)
    if rank == 0:
        dist.send(y + z, 1)
        dist.recv(received, 1)
    else:
        dist.recv(received, 0)
        dist.send(received * y, 0)
    dist.all_reduce(z)
    return received + z, y


def sent_by_either(rank, x):
    """Received from whoever sends."""
    y = torch.zeros(4, 4)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(y)
    return y + x


def between_barriers(rank, x):
    y = x + 1
    dist.barrier()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, rank)
    return y * sum(found)


def reduced_for_one(rank, x):
    y = x + rank
    dist.reduce(y, dst=0)
    return y * 2 if rank == 0 else x


def not_contiguous(rank, x):
    y = (x + rank).t()
    dist.all_reduce(y)
    return y + x


def checkpointed(rank, x):
    def inner(a):
        return functional.all_reduce(a * a, "sum", dist.group.WORLD) * a

    return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)


MESHES: list[dist.device_mesh.DeviceMesh] = []
#: What is captured whole: one graph.
WHOLE = (
    reduced,
    reduced_input,
    averaged,
    sent_to_all,
    gathered,
    gathered_in_place,
    scattered,
    exchanged,
    forgotten,
    twice,
    of_functions,
    of_columns,
    of_a_mesh,
    uneven,
    sent_by_one,
    asynchronous,
    gathered_meanwhile,
    passed_on,
    passed_around,
    passed_meanwhile,
    swapped,
    sent_beside_sums,
)
#: What has a part that no graph holds.
BROKEN = (
    never_waited_for,
    waited_for_later,
    sent_by_either,
    between_barriers,
    reduced_for_one,
    not_contiguous,
    checkpointed,
)
#: What has gradients.
GRADED = (twice, of_functions, of_columns, checkpointed, sent_by_one)
