"""Networks of the zoo keep a list of their gates and the arguments that build them; insertion keeps both true."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from zoo.insertion.mechanism import Mechanism
from zoo.insertion.placement import Place
from zoo.layers.attention_slots import AttentionPlace
from zoo.models.backbone import Backbone


class Slot(NamedTuple):
    """A slot of a network of the zoo: its place, and the channels of its map."""

    place: Place
    channels: int


def record_insertion(model: nn.Module, slots: Sequence[Slot], mechanism: Mechanism, inserted: Sequence[Place]) -> None:
    """Bring the list of gates and the config of every network of the zoo within ``model`` up to date.

    The config then builds the same network, unless gates of several kinds stand in it, which no config can say.

    Args:
        model: The network after the insertion.
        slots: All slots, filled or not.
        mechanism: What was inserted.
        inserted: The places that got a gate.
    """
    for name, backbone in model.named_modules():
        prefix = f"{name}." if name else ""
        own = [slot for slot in slots if slot.place.target.startswith(prefix)] if isinstance(backbone, Backbone) else []
        if not any(slot.place in inserted for slot in own):
            continue
        assert isinstance(backbone, Backbone)
        if "before_insertion" not in vars(backbone):
            vars(backbone)["before_insertion"] = (dict(backbone.config), backbone._attention_places)
        filled = [slot for slot in own if _is_filled(model, slot.place)]
        backbone._attention_places = tuple(
            AttentionPlace(slot.place.target.removeprefix(prefix), slot.place.stage or 1, slot.channels)
            for slot in filled
        )
        if mechanism.is_registered and all(slot.place in inserted for slot in filled):
            stages = sorted({slot.place.stage or 1 for slot in filled})
            backbone.config = {
                **backbone.config,
                "attention": mechanism.name,
                "attention_args": mechanism.resolved_args,
                "attention_stages": None if len(filled) == len(own) else stages,
            }


def record_removal(model: nn.Module) -> None:
    """Give every network of the zoo within ``model`` the config and the list of gates it had before."""
    for backbone in model.modules():
        if isinstance(backbone, Backbone) and "before_insertion" in vars(backbone):
            backbone.config, backbone._attention_places = vars(backbone).pop("before_insertion")


def _is_filled(model: nn.Module, place: Place) -> bool:
    parent_name, _, child = place.target.rpartition(".")
    return isinstance(getattr(model.get_submodule(parent_name), child, None), nn.Module)
