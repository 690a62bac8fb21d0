"""Fit the tensors of a source to a model that may have another head, other input channels, or gates of its own."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.factory import PUBLISHED_TOKEN_ATTENTION
from zoo.layers.positions import resize_grid
from zoo.models.backbone import Backbone, attention_registry
from zoo.pretrained.loading import check_problems, resolve_config
from zoo.pretrained.name_maps import Family, Piece, Weights, family_of, find_family
from zoo.pretrained.plain_values import to_plain
from zoo.pretrained.reading import FoundWeights
from zoo.pretrained.report import LoadReport
from zoo.registry import TOKEN_ATTENTION

ADAPTABLE = ("num_classes", "in_channels", "image_size")
"""Arguments of a model that may differ from the source's: the tensors they shape are adapted."""

INDIFFERENT = ("dropout", "drop_path_rate")
"""Arguments that change no tensor and nothing a trained network computes."""

INDIFFERENT_TO_ATTENTION = ("attention_dropout", "backend")
"""The same, of attentions between tokens."""


def to_our_names(found: FoundWeights, model_name: str) -> Weights:
    """Return the tensors of a source under our names for a model.

    Raises:
        ValueError: The source is for another model, its layout is not known, or it serves several networks and the
            source does not say which.
    """
    if found.card is not None:
        return {name: Piece(name, tensor) for name, tensor in found.tensors.items()}
    if found.original is not None and found.original.model != model_name:
        theirs = f"{found.original.library}'s {found.original.name}"
        raise ValueError(f"{theirs} is our {found.original.model}, not {model_name}")
    layout = family_of(model_name).layout_of(found.tensors)
    if layout.ask and found.original is None:
        raise ValueError(f"{layout.ask}: say which it is with {found.source}#architecture=NAME")
    return layout.convert(found.tensors)


def has_gates(weights: Weights) -> bool:
    """Tell whether tensors of gates are among the weights."""
    return any(".attention." in name for name in weights)


def check_config(model: Backbone, found: FoundWeights) -> None:
    """Raise ValueError when the source says what network it is for, and the model computes something else.

    The number of classes and of input channels may differ, and the model may have gates where the source has none.
    """
    if found.card is not None:
        stated: Mapping[str, Any] = found.card.model
    elif found.original is not None:
        stated = {"name": found.original.model, **found.original.options}
    else:
        return
    config = to_plain(model.config, "model")
    # What the source leaves out, as a card does that is older than an option, is the default.
    expected = to_plain(resolve_config(stated), "model")
    accepted = {*ADAPTABLE, *INDIFFERENT}
    if attention_registry(config["name"]) is TOKEN_ATTENTION:
        config, expected = _spell_out_attention(config), _spell_out_attention(expected)
    elif expected.get("attention") in (None, "none"):
        accepted |= {"attention", "attention_args", "attention_stages"}
    elif config.get("attention_stages") is None:
        accepted.add("attention_stages")
    differing = [name for name in {**expected, **config} if config.get(name) != expected.get(name)]
    facts = [
        f"{name} is {config.get(name)!r}, not {expected.get(name)!r}" for name in differing if name not in accepted
    ]
    if facts:
        raise ValueError(f"the model is not the one the weights {found.source!r} were trained in: {'; '.join(facts)}")


def _spell_out_attention(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a network of tokens with its attention by name, without options that change no result."""
    spelt_out = dict(config)
    if config["attention"] is None:
        spelt_out = to_plain(resolve_config({**config, "attention": PUBLISHED_TOKEN_ATTENTION}), "model")
    options = spelt_out["attention_args"]
    spelt_out["attention_args"] = {key: options[key] for key in options if key not in INDIFFERENT_TO_ATTENTION}
    return spelt_out


def adapt_weights(
    model: Backbone, found: FoundWeights, weights: Weights, *, allow_fresh_gates: bool = False
) -> tuple[dict[str, Tensor], LoadReport]:
    """Return a whole state dict for the model, and what became of every tensor.

    - A head for another number of classes is left as the model has it, fresh.
    - The first convolution is adapted to another number of channels by :func:`adapt_channels`.
    - Learned positions of a grid are resized to that of another size of image.
    - Gates that the source does not have stay fresh; they must change nothing, unless ``allow_fresh_gates``.

    Args:
        model: Made by :func:`zoo.create_model`; stays as it is.
        found: The source.
        weights: Its tensors under our names.
        allow_fresh_gates: Accept fresh gates that change the features.

    Raises:
        ValueError: A tensor is missing, unexpected or of another shape without an explanation; all are listed.
    """
    family = find_family(model.config["name"])
    state: dict[str, Tensor] = {}
    used: dict[str, str] = {}
    adapted: dict[str, str] = {}
    missing = _fresh_gates(model, weights, allow_fresh_gates)
    problems: dict[str, list[str]] = {"missing": [], "unexpected": [], "of another shape": []}
    own_state = model.state_dict()
    for name, own in own_state.items():
        piece = weights.get(name)
        if piece is None:
            state[name] = own
            if name not in missing and name.endswith(".num_batches_tracked"):
                missing[name] = "older files do not count the batches of a norm"
            elif name not in missing:
                problems["missing"].append(name)
        elif piece.tensor.shape == own.shape:
            state[name], used[name] = piece.tensor, piece.origin
        elif (fitted := _fit(name, piece.tensor, own, family)) is not None:
            state[name], adapted[name] = fitted
        else:
            problems["of another shape"].append(f"{name} {tuple(piece.tensor.shape)} instead of {tuple(own.shape)}")
    problems["unexpected"] = sorted(piece.origin for name, piece in weights.items() if name not in own_state)
    check_problems(problems, found.source)
    report = LoadReport(
        source=found.source,
        model=model.config["name"],
        sha256=found.sha256,
        used=used,
        rewritten={name: weights[name].change for name in used if weights[name].change},
        adapted=adapted,
        missing=missing,
        unexpected=found.ignored,
        peeled=found.peeled,
        entry=found.entry,
        card=found.card,
    )
    return state, report


def _fresh_gates(model: Backbone, weights: Weights, allow_fresh_gates: bool) -> dict[str, str]:
    """Return the tensors of all gates that the source knows nothing of, each with the reason why that is right.

    Raises:
        ValueError: Such a gate would change the features, and that is not allowed.
    """
    missing: dict[str, str] = {}
    for place in model.attention_places():
        names = [f"{place.name}.{name}" for name in model.get_submodule(place.name).state_dict()]
        if any(name in weights for name in names):
            continue
        if any(name.startswith(f"{place.name}.") for name in weights):
            raise ValueError(
                f"the weights have a gate of another kind at {place.name}, and the net was trained with it: "
                "replacing it would change what they compute"
            )
        harmless = is_identity(model.get_submodule(place.name), place.channels)
        if not (harmless or allow_fresh_gates):
            raise ValueError(
                f"the weights have no gate for {place.name}, and a fresh one changes the features: "
                "pass attention_args={'identity_start': True}, so that it changes nothing until it is trained"
            )
        reason = "a gate that starts as the identity" if harmless else "a fresh gate, which changes the features"
        missing |= dict.fromkeys(names, reason)
    return missing


def is_identity(gate: nn.Module, channels: int) -> bool:
    """Tell whether a gate returns a map of random values bit for bit."""
    features = torch.randn(2, channels, 7, 7, generator=torch.Generator().manual_seed(0))
    training = gate.training
    try:
        with torch.no_grad():
            return torch.equal(gate.eval()(features), features)
    finally:
        gate.train(training)


def _fit(name: str, tensor: Tensor, own: Tensor, family: Family | None) -> tuple[Tensor, str] | None:
    """Return a tensor of the model's shape and what was done, or ``None`` where nothing explains the difference."""
    if family is None:
        return None
    if name.rpartition(".")[0] == family.head and tensor.shape[1:] == own.shape[1:]:
        return own, f"the head for {tensor.shape[0]} classes is replaced by a fresh one for {own.shape[0]}"
    if name == f"{family.stem}.weight" and (tensor.shape[0], *tensor.shape[2:]) == (own.shape[0], *own.shape[2:]):
        return adapt_channels(tensor, own.shape[1]), f"filters for {tensor.shape[1]} channels adapted to {own.shape[1]}"
    if name == family.positions and tensor.ndim == 4 and tensor.shape[::3] == own.shape[::3]:
        (rows, columns), (old_rows, old_columns) = own.shape[1:3], tensor.shape[1:3]
        change = f"positions of a grid of {old_rows} x {old_columns} resized to {rows} x {columns}"
        return resize_grid(tensor, (rows, columns)), change
    return None


def adapt_channels(filters: Tensor, in_channels: int) -> Tensor:
    """Return the filters of a first convolution for another number of input channels.

    For one channel the filters are summed, so that a grey image gives what it gave as three equal channels. For more,
    they are repeated in turn and scaled by the old number over the new, which keeps the size of the sums: six equal
    channels give what three gave.

    Shape:
        ``(out_channels, channels, height, width)`` to ``(out_channels, in_channels, height, width)``

    >>> adapt_channels(torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1), 1).flatten().tolist()
    [6.0]
    >>> adapt_channels(torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1), 6).flatten().tolist()
    [0.5, 1.0, 1.5, 0.5, 1.0, 1.5]
    """
    if in_channels == 1:
        return filters.sum(dim=1, keepdim=True)
    order = torch.arange(in_channels) % filters.shape[1]
    return filters[:, order] * (filters.shape[1] / in_channels)
