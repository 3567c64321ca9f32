"""Guards on sizes: relations over symbols, each of which is read from somewhere in the frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia_guards import relations
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.rows import HeldGuard
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.guards import SizeGuard
from intarsia_ir.records import GuardRecord, SizeFacts

if TYPE_CHECKING:
    from intarsia_guards.codegen import TextWriter
    from intarsia_guards.native import NativeWriter

__all__ = ["HeldSize", "size_guards"]


@dataclass(frozen=True, slots=True)
class HeldSize(HeldGuard[SizeGuard]):
    """A relation between sizes. The writers check all of a set at once, since they share symbols.

    Args:
        relation: Python expression over symbols.
        symbols: Symbol of the relation -> text of where it is read.
    """

    record: ClassVar[type[GuardRecord]] = SizeGuard
    cost: ClassVar[int] = 21

    relation: str
    symbols: Mapping[str, str]

    @classmethod
    def of(cls, record: SizeGuard) -> HeldSize:
        """Return the guard without its symbols, which `size_guards` knows."""
        return cls(record.fact.relation, {}, origin=record.fact.origin or record.origin, reason=record.reason)

    @property
    def subject(self) -> str:
        return f"`{self.relation}`"

    def look(self, frame: Frame) -> dict[str, Any]:
        def value(text: str) -> Any:
            return relations.evaluate(text, lambda source: fetch(source, frame))

        return {name: value(text) for name, text in self.symbols.items()}

    def check(self, actual: Any, frame: Frame) -> bool:
        # `n % m == 0` says nothing where `m` is 0: what raises doesn't hold
        return bool(relations.evaluate(self.relation, lambda source: None, actual))

    def native(self, writer: NativeWriter) -> None:
        writer.sizes.add(self.relation, self.symbols)

    def text(self, writer: TextWriter) -> None:
        writer.sizes.add(self.relation, self.symbols)

    def asked(self) -> str:
        return "true"

    def seen(self, actual: Any, frame: Frame) -> str:
        now = ", ".join(f"{name} = {actual[name]} ({self.symbols[name]})" for name in sorted(self.symbols))
        return f"false with {now}"

    def remedy(self, actual: Any) -> str:
        if " == " in self.relation:  # it has as many sides as there are numbers
            return "each number that the equality fixes is compiled apart: pass what is computed here as a tensor"
        return "nothing, if sizes on both sides of the relation occur: each side is compiled once"


def size_guards(facts: SizeFacts, further: Iterable[HeldSize]) -> tuple[HeldSize, ...]:
    """Return a guard for each fact, for each bound of a range, and for further relations, without repeats.

    Raises:
        InvalidArgumentError: A relation isn't an expression over symbols, or its symbol isn't read anywhere.
    """
    sizes: dict[str, HeldSize] = {}
    for guard in (*_facts(facts), *further, *_bounds(facts)):
        if guard.relation not in sizes:
            sizes[guard.relation] = guard
    names = {relation: relations.names_in(relation) for relation in sizes}
    unknown = sorted(set().union(*names.values()) - set(facts.symbols))
    if unknown:
        raise InvalidArgumentError(
            f"relations use the symbols {', '.join(unknown)}, which no argument defines", code="guards.symbol"
        )
    return tuple(
        HeldSize(
            guard.relation,
            {name: facts.symbols[name] for name in sorted(names[guard.relation])},
            origin=guard.origin,
            reason=guard.reason,
        )
        for guard in sizes.values()
    )


def _facts(facts: SizeFacts) -> Iterator[HeldSize]:
    return (HeldSize(fact.relation, {}, origin=fact.origin) for fact in facts.facts)


def _bounds(facts: SizeFacts) -> Iterator[HeldSize]:
    for name, (low, high) in facts.ranges.items():
        if name in facts.symbols:
            bounds = [f"{low} <= {name}"] * (low is not None) + [f"{name} <= {high}"] * (high is not None)
            yield from (HeldSize(bound, {}) for bound in bounds)
