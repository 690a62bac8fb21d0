"""Which modules get a gate: the branches of known families, or those that a name, a pattern or a predicate selects."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from zoo.insertion.families import FAMILIES, Family, Side, family_of
from zoo.models.backbone import Backbone, attention_registry
from zoo.registry import ATTENTION, MODELS

BRANCHES = "branches"

Where = str | re.Pattern[str] | Sequence[str | re.Pattern[str]] | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class Place:
    """Where a gate goes.

    Args:
        target: Qualified name of the module whose map is gated; in a network of the zoo, of its slot.
        side: Whether the map is what the module returns or what it is given.
        family: The rule behind it; ``None`` where the caller chose.
        stage: Stage counted from 1, where a name or the network itself tells it.
        is_slot: Whether ``target`` is a slot of a network of the zoo, which may be empty.
        step_before: The step of a sequence that the slot follows.
    """

    target: str
    side: Side = "output"
    family: Family | None = None
    stage: int | None = None
    is_slot: bool = False
    step_before: str | None = None


def find_places(model: nn.Module, where: Where) -> list[Place]:
    """Return the places that ``where`` means, in the order of the modules.

    Raises:
        ValueError: Nothing matches; the message says what is there.
    """
    if where == BRANCHES:
        places = [*_slots(model), *_branches(model)]
        if not places:
            raise ValueError(
                f"no block of a known family in this {type(model).__name__} ({_summary(model)}); name the modules "
                f"whose maps are to be gated with where=. Known: {', '.join(family.name for family in FAMILIES)}, "
                "and what zoo.create_model makes"
            )
        return places
    return [Place(name) for name in select_modules(model, where)]


def _slots(model: nn.Module) -> Iterator[Place]:
    """Find the slots of the zoo's own networks: those that a twin, built on no device with all slots filled, lists."""
    for name, module in model.named_modules():
        if not isinstance(module, Backbone) or not hasattr(module, "config"):
            continue
        if attention_registry(module.config["name"]) is not ATTENTION:  # attention between tokens leaves no slot
            continue
        prefix = f"{name}." if name else ""
        twin = _twin(module)
        for place in twin.attention_places():
            parent = twin.get_submodule(place.name.rpartition(".")[0])
            steps = [step for step, _ in parent.named_children()]
            step_before = steps[steps.index("attention") - 1] if isinstance(parent, nn.Sequential) else None
            yield Place(prefix + place.name, stage=place.stage, is_slot=True, step_before=step_before)


def _twin(backbone: Backbone) -> Backbone:
    apart = ("name", "attention", "attention_args", "attention_stages")
    options: dict[str, Any] = {key: value for key, value in backbone.config.items() if key not in apart}
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return MODELS[backbone.config["name"]](attention=lambda _: nn.Identity(), **options)


def _branches(model: nn.Module) -> Iterator[Place]:
    for name, module in model.named_modules():
        family = family_of(module)
        if family is not None:
            target = f"{name}.{family.child_of(module)}".lstrip(".")
            number = re.search(family.stage, target) if family.stage else None
            yield Place(target, family.side, family, int(number[1]) if number else None)


def select_modules(model: nn.Module, where: Where) -> list[str]:
    """Return the names of the modules that names, globs, compiled patterns or a predicate select.

    Raises:
        ValueError: One of them matches nothing; the message says what is there.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    if callable(where):
        chosen = [name for name, module in modules.items() if where(name, module)]
        if not chosen:
            raise ValueError(f"where selects none of the {len(modules)} modules ({_summary(model)})")
        return chosen
    selectors = [where] if isinstance(where, str | re.Pattern) else list(where)
    matched: dict[str, list[str]] = {}
    for selector in selectors:
        if not isinstance(selector, str | re.Pattern):
            raise ValueError(
                f"where ({where!r}) must be {BRANCHES!r}, names or patterns of modules, or a function of name and "
                "module"
            )
        text = selector if isinstance(selector, str) else selector.pattern
        pattern = re.compile(_translate(selector)) if isinstance(selector, str) else selector
        matched[text] = [name for name in modules if pattern.fullmatch(name)]
    for text, names in matched.items():
        if not names:
            raise ValueError(f"where={text!r} matches no module.{_nearest(text, list(modules))} ({_summary(model)})")
    if not matched:
        raise ValueError("where is an empty list: it names no module")
    wanted = {name for names in matched.values() for name in names}
    return [name for name in modules if name in wanted]


def _translate(glob: str) -> str:
    """Turn a glob over dotted names into a regular expression: ``*`` stands within a part, ``**`` for any parts.

    >>> bool(re.fullmatch(_translate("layer[34].*.bn?"), "layer3.0.bn2"))
    True
    >>> bool(re.fullmatch(_translate("layer3.*"), "layer3.0.bn2"))
    False
    >>> bool(re.fullmatch(_translate("**.bn2"), "layer3.0.bn2"))
    True
    """
    pieces = {"**.": r"(?:.+\.)?", "**": ".*", "*": r"[^.]*", "?": r"[^.]"}
    parts = re.split(r"(\*\*\.|\*\*|\*|\?|\[[^\]]+\])", glob)
    return "".join(part if part.startswith("[") else pieces.get(part, re.escape(part)) for part in parts)


def _nearest(text: str, names: list[str]) -> str:
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.6)
    return f" Near: {', '.join(near)}." if near else ""


def _summary(model: nn.Module) -> str:
    children = [f"{name}: {type(child).__name__}" for name, child in model.named_children()]
    shown = ", ".join(children[:12]) + (", ..." if len(children) > 12 else "")
    return f"its children are {shown}" if children else "it has no children"


def enclosing(name: str) -> list[str]:
    """Return the names of the modules around one, the nearest first.

    >>> enclosing("layer1.0.bn2")
    ['layer1.0', 'layer1', '']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]
