"""Which gate goes where: the places that are meant, what one pass saw there, and what has to make way."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_changes
from typing import Any

from torch import nn

from zoo.insertion.attachment import empty_slot, fill_slot, inserted_gates
from zoo.insertion.backbones import Slot
from zoo.insertion.placement import BRANCHES, Place, Where, find_places
from zoo.insertion.refusals import check_distinct, check_sight, check_stages, refuse_doubling
from zoo.insertion.tracing import Sight, watch


@dataclass(frozen=True)
class PlannedGate:
    """A place that gets a gate.

    Args:
        place: Where.
        sight: What was seen there; its value is the map.
        present: Name of the gate that makes way, ``None`` for none.
        present_class: Its class.
    """

    place: Place
    sight: Sight
    present: str | None
    present_class: str | None


@dataclass(frozen=True)
class Plan:
    """The gates to be inserted, all slots of networks of the zoo, and what the model returned before."""

    gates: tuple[PlannedGate, ...]
    slots: tuple[Slot, ...]
    output: Any


def make_plan(
    model: nn.Module, where: Where, stages: Sequence[int] | None, example: tuple[Any, ...], *, replace: bool
) -> Plan:
    """Find the places, look at them in one pass, and leave only those that are right.

    Raises:
        ValueError: A place is no ground for a gate, or a gate is there and ``replace`` is off.
    """
    found = find_places(model, where)
    with _filled_slots(model, found) as empty:
        sights, output = watch(model, {place.target: place.side for place in found}, example)
        places = _number_stages(found, sights)
        slots = tuple(Slot(place, sights[place.target].channels) for place in places if place.is_slot)
        present: dict[Place, str] = {}
        for place in places:
            gate = place.target if place.is_slot and place.target not in empty else sights[place.target].gate
            if gate is not None:
                present[place] = gate
        if where == BRANCHES:
            places = _published_places(model, places, present)
        check_stages(stages, places, is_branches=where == BRANCHES)
        places = [place for place in places if stages is None or place.stage in stages]
        for place in places:
            check_sight(model, place, sights[place.target])
    check_distinct({place.target: sights[place.target] for place in places})
    refuse_doubling(model, [present[place] for place in places if place in present], replace=replace)
    gates = []
    for place in places:
        name = present.get(place)
        kind = None if name is None else type(model.get_submodule(name)).__name__
        gates.append(PlannedGate(place, sights[place.target], name, kind))
    return Plan(tuple(gates), slots, output)


@contextmanager
def _filled_slots(model: nn.Module, places: Sequence[Place]) -> Iterator[set[str]]:
    """Put something that changes nothing in every empty slot, so that the map passing there can be seen."""
    empty = set()
    with ExitStack() as stack:
        for place in places:
            parent_name, _, child = place.target.rpartition(".")
            parent = model.get_submodule(parent_name)
            if place.is_slot and getattr(parent, child, None) is None:
                empty.add(place.target)
                fill_slot(parent, nn.Identity(), place.step_before)
                stack.callback(empty_slot, parent, None)
        yield empty


def _number_stages(places: Sequence[Place], sights: dict[str, Sight]) -> list[Place]:
    """Sort the places as they ran, and count the resolutions of those whose stage is not known yet."""
    numbered = []
    stage, size = 0, None
    for place in sorted(places, key=lambda place: sights[place.target].order):
        sight = sights[place.target]
        if place.family is not None and place.stage is None and sight.num_channels:
            if sight.value.shape[2:] != size:
                stage, size = stage + 1, sight.value.shape[2:]
            numbered.append(with_changes(place, stage=stage))
        else:
            numbered.append(place)
    return numbered


def _published_places(model: nn.Module, places: list[Place], present: dict[Place, str]) -> list[Place]:
    """Leave only the blocks with a gate in families that publish one in some blocks: MobileNetV3, EfficientNetV2."""
    ours = {gate.name for gate in inserted_gates(model) if gate.mark.way != "instead"}
    published = {place for place, name in present.items() if place.family is not None and name not in ours}
    return [place for place in places if not published or place.family is None or place in published]
