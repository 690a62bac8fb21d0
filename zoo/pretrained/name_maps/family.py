"""What a name map is made of."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor


class Piece(NamedTuple):
    """One tensor of ours, made of one of theirs (or more, whose names are then joined by ``+``).

    Args:
        origin: What it is called there.
        tensor: The value.
        change: What was done to the value; empty where only the name is another.
    """

    origin: str
    tensor: Tensor
    change: str = ""


Weights = dict[str, Piece]
"""A whole network under our names."""


@dataclass(frozen=True)
class Layout:
    """How some code base names and shapes the tensors of a family.

    Args:
        name: Whose it is.
        recognises: Tells from the names whether a state dict is laid out so.
        convert: Turns such a state dict into ours; what it has no name for keeps its own, and is refused later.
        ask: Set where one layout serves several networks that compute different things: why the architecture must
            be told.
    """

    name: str
    recognises: Callable[[Collection[str]], bool]
    convert: Callable[[Mapping[str, Tensor]], Weights]
    ask: str = ""


@dataclass(frozen=True)
class Original:
    """A published network, and the arguments of :func:`zoo.create_model` that make one with the same logits."""

    library: str
    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """What is known about weights of one of our families.

    Args:
        models: Registered names.
        head: The last linear layer, one logit per class; replaced where the number of classes is another.
        stem: The convolution that takes the image; adapted where the number of channels is another.
        layouts: Tried in order, the first that recognises the names is taken.
        originals: Networks with a counterpart.
        refusals: Library, pattern of names, and why these networks have none.
        positions: Learned positions of a grid of tokens; resized where the image has another size.
    """

    models: tuple[str, ...]
    head: str
    stem: str
    layouts: Sequence[Layout]
    originals: Sequence[Original]
    refusals: Sequence[tuple[str, str, str]] = ()
    positions: str | None = None

    def layout_of(self, names: Collection[str]) -> Layout:
        """Return the layout of a state dict.

        Raises:
            ValueError: None fits.
        """
        for layout in self.layouts:
            if layout.recognises(names):
                return layout
        known = ", ".join(layout.name for layout in self.layouts)
        shown = ", ".join(sorted(names)[:5])
        raise ValueError(f"tensors called {shown}, ... are in none of the layouts known for this model: {known}")

    def refusal(self, library: str, name: str) -> str:
        """Return why a published network has no counterpart, or an empty text."""
        reasons = (why for where, pattern, why in self.refusals if where == library and re.fullmatch(pattern, name))
        return next(reasons, "")


def rename(state: Mapping[str, Tensor], rules: Sequence[tuple[str, str]]) -> Weights:
    r"""Apply to each name every rule, a pattern and its replacement, in order.

    >>> import torch
    >>> list(rename({"linear.bias": torch.zeros(1)}, [(r"^linear\.", "fc.")]))
    ['fc.bias']
    """
    renamed: Weights = {}
    for name, tensor in state.items():
        ours = name
        for pattern, replacement in rules:
            ours = re.sub(pattern, replacement, ours)
        if ours in renamed:
            raise ValueError(f"both {renamed[ours].origin} and {name} would be called {ours}")
        renamed[ours] = Piece(name, tensor)
    return renamed


def rename_modules(state: Mapping[str, Tensor], modules: Mapping[str, str]) -> Weights:
    """Give the tensors of each module listed the module's new name; others keep theirs.

    >>> import torch
    >>> list(rename_modules({"conv_stem.weight": torch.zeros(1)}, {"conv_stem": "features.0.0"}))
    ['features.0.0.weight']
    """
    renamed: Weights = {}
    for name, tensor in state.items():
        module, _, leaf = name.rpartition(".")
        renamed[f"{modules.get(module, module)}.{leaf}".removeprefix(".")] = Piece(name, tensor)
    return renamed


def flatten_pointwise(weights: Weights, pattern: str) -> Weights:
    """Return the weights with every 1x1 convolution whose name matches turned into the equal linear layer."""
    flat = dict(weights)
    for name, piece in weights.items():
        if re.search(pattern, name) and piece.tensor.ndim == 4 and piece.tensor.shape[2:] == (1, 1):
            flat[name] = Piece(piece.origin, piece.tensor.flatten(1), "1x1 convolution written as a linear layer")
    return flat


def change_norm_eps(weights: Weights, *, theirs: float, ours: float) -> Weights:
    """Return the weights with all batch norms rescaled so that they give with our ``eps`` what they gave with theirs.

    In evaluation a norm multiplies by ``weight / sqrt(running_var + eps)``; the new weight makes up for the other eps,
    exactly. In training, where the batch's own variance stands there, a channel of small variance is scaled by
    slightly more or less than before.
    """
    changed = dict(weights)
    for name, piece in weights.items():
        stem = name.removesuffix(".running_var")
        scale = weights.get(f"{stem}.weight")
        if stem == name or scale is None:
            continue
        variance = piece.tensor.double()
        factor = ((variance + ours) / (variance + theirs)).sqrt()
        rescaled = (scale.tensor.double() * factor).to(scale.tensor.dtype)
        changed[f"{stem}.weight"] = Piece(scale.origin, rescaled, f"rescaled from eps {theirs:g} to {ours:g}")
    return changed
