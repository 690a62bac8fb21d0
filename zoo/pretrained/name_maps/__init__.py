"""What published networks are called, and how their tensors are called and laid out: one file per family of models.

A file here that defines ``FAMILIES`` is found without any list to edit.
"""

import importlib
import pkgutil
from functools import cache

from zoo.pretrained.name_maps.family import Family, Layout, Original, Piece, Weights

__all__ = ["Family", "Layout", "Original", "Piece", "Weights", "families", "family_of", "find_family", "find_original"]


@cache
def families() -> tuple[Family, ...]:
    """Return all families."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(family for module in modules for family in getattr(module, "FAMILIES", ()))


def find_family(model: str) -> Family | None:
    """Return the family that our model of this name belongs to, if there is a name map for it."""
    return next((family for family in families() if model in family.models), None)


def family_of(model: str) -> Family:
    """Return the family of a model like :func:`find_family`; raise ValueError when there is none."""
    family = find_family(model)
    if family is None:
        raise ValueError(f"model {model!r} has no name map: only weights with a card of ours can be loaded into it")
    return family


def find_original(library: str, name: str) -> Original:
    """Return the published network ``name`` of a library, if one of ours computes the same.

    Raises:
        ValueError: None does; the message gives the reason, or the networks that have a counterpart.
    """
    for family in families():
        for original in family.originals:
            if (original.library, original.name) == (library, name):
                return original
    for family in families():
        if reason := family.refusal(library, name):
            raise ValueError(f"{library}'s {name} has no exact counterpart here: {reason}")
    known = [original.name for family in families() for original in family.originals if original.library == library]
    raise ValueError(f"{library}'s {name} has no counterpart here. Those that have: {', '.join(known)}")
