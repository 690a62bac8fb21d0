"""The only place where a name becomes an object: attention mechanisms and models."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from zoo.functional.validation import check_positive_int
from zoo.layers.attention_slots import AttentionFactory
from zoo.models.backbone import Backbone
from zoo.registry import ATTENTION, MODELS, TOKEN_ATTENTION, suggest

_ATTENTION_OPTIONS = ("attention", "attention_args", "attention_stages")


def list_attention() -> list[str]:
    """Return the names of all attention mechanisms for feature maps, sorted."""
    return list(ATTENTION)


def list_token_attention() -> list[str]:
    """Return the names of all attention mechanisms for tokens, sorted."""
    return list(TOKEN_ATTENTION)


def list_models() -> list[str]:
    """Return the names of all models, sorted."""
    return list(MODELS)


def create_attention(name: str, channels: int, **attention_args: Any) -> nn.Module:
    """Create the attention ``name`` for feature maps of ``channels`` channels.

    Args:
        name: A name out of :func:`list_attention`.
        channels: Width of the feature map, at least 1.
        attention_args: Options of the mechanism; see its class.

    Raises:
        ValueError: The name, an option or its value is not known to the mechanism.

    >>> import torch
    >>> create_attention("se", 64, reduction_ratio=8)(torch.zeros(2, 64, 7, 7)).shape
    torch.Size([2, 64, 7, 7])
    >>> create_attention("se", 64, reduction=8)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: unknown option 'reduction' of attention 'se'. Did you mean 'reduction_ratio'? Known: ...
    """
    mechanism = ATTENTION[name]
    options = _resolve_options(f"attention {name!r}", mechanism, attention_args)
    return mechanism(check_positive_int("channels", channels), **options)


def create_token_attention(name: str, embed_dim: int, **attention_args: Any) -> nn.Module:
    """Create the attention ``name`` for tokens of ``embed_dim`` numbers.

    Args:
        name: A name out of :func:`list_token_attention`.
        embed_dim: Width of the tokens, at least 1.
        attention_args: Options of the mechanism, ``num_heads`` among them; see its class.

    Raises:
        ValueError: The name, an option or its value is not known to the mechanism.

    >>> import torch
    >>> create_token_attention("multi_head", 192, num_heads=3)(torch.zeros(2, 65, 192)).shape
    torch.Size([2, 65, 192])
    >>> create_token_attention("multi_head", 192)
    Traceback (most recent call last):
    ...
    ValueError: token attention 'multi_head' needs the option 'num_heads'
    """
    mechanism = TOKEN_ATTENTION[name]
    options = _resolve_options(f"token attention {name!r}", mechanism, attention_args)
    return mechanism(check_positive_int("embed_dim", embed_dim), **options)


def create_model(
    name: str,
    *,
    attention: str | None = None,
    attention_args: Mapping[str, Any] | None = None,
    attention_stages: Sequence[int] | None = None,
    num_classes: int | None = None,
    in_channels: int = 3,
    stem: str | None = None,
    **model_args: Any,
) -> Backbone:
    """Create the model ``name``, with random weights, as ``zoo.create_model`` does without ``pretrained``.

    Args:
        name: A name out of :func:`list_models`.
        attention: The mechanism put at the model's documented places; ``None`` for the model as published
            (MobileNetV3 keeps its own squeeze-and-excitation), ``"none"`` for no attention anywhere.
        attention_args: Options of the mechanism.
        attention_stages: Stages, counted from 1, that get it; ``None`` for all.
        num_classes: Number of logits; ``None`` for the family's own, 10 for the CIFAR ResNets and 1000 for the others.
        in_channels: Channels of the image, at least 1.
        stem: ``"cifar"`` or ``"imagenet"``; ``None`` for the one of the images that the family was published for.
        model_args: Options of the model, such as ``width_multiplier``.

    Returns:
        The model; its ``config`` holds all arguments resolved, as plain values that make the same network again.

    Raises:
        ValueError: A name, an option or a value is not known, or an option would have no effect.

    >>> import torch
    >>> model = create_model("resnet20", attention="se", num_classes=7)
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 7])
    >>> create_model("resnet20", atention="se")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: unknown option 'atention' of model 'resnet20'. Did you mean 'attention'? Known: ...
    """
    build = MODELS[name]
    shared = {"num_classes": num_classes, "in_channels": in_channels, "stem": stem}
    options = {key: value for key, value in shared.items() if value is not None} | model_args
    resolved = _resolve_options(f"model {name!r}", build, options, apart=_ATTENTION_OPTIONS)
    gates, resolved_attention_args = _resolve_attention(attention, attention_args, attention_stages)
    model = build(**gates, **resolved)
    model.config = {
        "name": name,
        "attention": attention,
        "attention_args": resolved_attention_args,
        "attention_stages": None if attention_stages is None else list(attention_stages),
        **resolved,
    }
    return model


def _resolve_attention(
    attention: str | None, attention_args: Mapping[str, Any] | None, attention_stages: Sequence[int] | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the model's arguments about attention, and the mechanism's options with all defaults filled in."""
    if attention is None or attention == "none":
        given = {"attention_args": attention_args or None, "attention_stages": attention_stages}
        for label, value in given.items():
            if value is not None:
                raise ValueError(f"{label} ({value!r}) has no effect with attention={attention!r}; name a mechanism")
        return ({} if attention is None else {"attention": None}), None
    mechanism = ATTENTION[attention]
    args = _resolve_options(f"attention {attention!r}", mechanism, attention_args or {})
    factory: AttentionFactory = partial(mechanism, **args)
    return {"attention": factory, "attention_stages": attention_stages}, args


def _resolve_options(
    owner: str, build: Callable[..., Any], options: Mapping[str, Any], *, apart: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all keyword-only arguments of ``build``, the given in place of the defaults, as plain values.

    Those named in ``apart`` are left out: they are handled elsewhere, and only suggested for a misspelt name.

    Raises:
        ValueError: An option is not an argument of ``build``, or one without a default is missing.
    """
    parameters = {
        key: parameter
        for key, parameter in inspect.signature(build).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key not in apart
    }
    for option in options:
        if option not in parameters:
            hint = suggest(option, [*parameters, *apart])
            raise ValueError(f"unknown option {option!r} of {owner}.{hint} Known: {', '.join(parameters) or 'none'}")
    resolved = {}
    for key, parameter in parameters.items():
        value = options.get(key, parameter.default)
        if value is parameter.empty:
            raise ValueError(f"{owner} needs the option {key!r}")
        resolved[key] = list(value) if isinstance(value, tuple) else value
    return resolved
