"""Objects whose end the program can see: the frame runs as it is, and they end where they do in eager."""

from __future__ import annotations

import weakref

import pytest
from executor import Executor

from intarsia_pyeval import Extension


class Noisy:
    def __init__(self, log, name="noisy"):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(f"end of {self.name}")


class Quiet:
    pass


def local(log):
    kept = Noisy(log)
    log.append("made")
    kept = None
    log.append(kept)


def replaced(log):
    kept = Noisy(log, "first")
    kept = Noisy(log, "second")
    log.append(kept.name)


def in_a_list(log):
    kept = [Noisy(log), Noisy(log)]
    kept.clear()
    log.append("cleared")


def referred(log):
    kept = Quiet()
    reference = weakref.ref(kept, lambda _: log.append("gone"))
    log.append(reference() is kept)
    kept = None
    log.append(reference() is None)


def finalized(log):
    kept = Quiet()
    weakref.finalize(kept, log.append, "finalized")
    kept = None
    log.append("after")


def in_weak_containers(log):
    values, elements, keys, kept = (
        weakref.WeakValueDictionary(),
        weakref.WeakSet(),
        weakref.WeakKeyDictionary(),
        Quiet(),
    )
    values["a"] = keys[kept] = kept
    elements.add(kept)
    log.append((len(values), len(elements)))
    del keys[kept]
    kept = None
    log.append((len(values), len(elements)))


VALUES, KEYS, ELEMENTS = weakref.WeakValueDictionary(), weakref.WeakKeyDictionary(), weakref.WeakSet()


class Labelled(weakref.ref):
    def __new__(cls, referent, label):
        made = super().__new__(cls, referent)
        made.label = label
        return made

    def __init__(self, referent, label):
        super().__init__(referent)


def in_existing_weak_values(log):
    kept = Quiet()
    VALUES["a"] = kept
    log.append(len(VALUES))
    del kept
    log.append(len(VALUES))


def in_existing_weak_keys(log):
    kept = Quiet()
    KEYS[kept] = 1
    ELEMENTS.add(kept)
    log.append((len(KEYS), len(ELEMENTS)))
    kept = None
    log.append((len(KEYS), len(ELEMENTS)))


def in_a_reference_of_a_subclass(log):
    kept = Quiet()
    reference = Labelled(kept, "label")
    log.append((reference() is kept, reference.label))
    del kept
    log.append(reference() is None)


@pytest.mark.parametrize(
    "program",
    [
        local,
        replaced,
        in_a_list,
        referred,
        finalized,
        in_weak_containers,
        in_existing_weak_values,
        in_existing_weak_keys,
        in_a_reference_of_a_subclass,
    ],
)
def test_what_is_made_ends_where_it_does_in_eager(program):
    mine, theirs, executor = [], [], Executor(Extension, force=True)
    executor.call(program, mine)
    program(theirs)
    assert mine == theirs
    assert executor.captures[0].breaks[0].code == "tracer.lifetime"
    assert executor.captures[0].code.code is program.__code__


@pytest.mark.parametrize(
    "change",
    [
        lambda log, items, table, holder: (log.append(1), items.pop() and None, log.append(2)),
        lambda log, items, table, holder: (log.append(1), items.clear(), log.append(2)),
        lambda log, items, table, holder: (log.append(1), table.pop("a") and None, log.append(2)),
        lambda log, items, table, holder: (log.append(1), table.update(a=3), log.append(2)),
        lambda log, items, table, holder: (log.append(1), setattr(holder, "kept", 1), log.append(2)),
        lambda log, items, table, holder: (log.append(1), delattr(holder, "kept"), log.append(2)),
    ],
)
def test_what_existed_ends_where_it_does_in_eager(change):
    def world():
        log, holder = [], Quiet()
        holder.kept = Noisy(log, "attribute")
        return log, [Noisy(log, "first"), Noisy(log, "last")], {"a": Noisy(log, "value")}, holder

    mine, theirs = world(), world()
    found = Executor(Extension, force=True)
    found.call(change, *mine)
    change(*theirs)
    assert mine[0] == theirs[0]


def taken_out(held):
    reference = weakref.ref(held[0])
    held.pop()
    return reference() is None


def taken_out_of_a_dict(held):
    reference = weakref.ref(held["kept"])
    del held["kept"]
    return reference() is None


def replaced_attribute(held):
    reference = weakref.ref(held.kept)
    held.kept = None
    return reference() is None


def with_its_owner(held):
    reference = weakref.ref(held[0].kept)
    held[0] = None
    return reference() is None


def in_an_existing_table(held):
    held.kept.clear()
    return len(held.table) == 0


def table():
    made = Quiet()
    made.kept = [Quiet()]
    made.table = weakref.WeakValueDictionary(a=made.kept[0])
    return made


def still_held(held):
    reference = weakref.ref(held[0])
    return reference() is None


def owner():
    made = Quiet()
    made.kept = Quiet()
    return made


EXISTING = {
    taken_out: lambda: [Quiet()],
    taken_out_of_a_dict: lambda: {"kept": Quiet()},
    replaced_attribute: owner,
    with_its_owner: lambda: [owner()],
    in_an_existing_table: table,
    still_held: lambda: [Quiet()],
}


@pytest.mark.parametrize("program", EXISTING)
def test_existing_objects_are_gone_where_they_are_in_eager(program):
    executor = Executor(Extension, force=True)
    for _ in range(2):
        found = executor.call(program, EXISTING[program]())
        assert found == program(EXISTING[program]()) == (program is not still_held)
