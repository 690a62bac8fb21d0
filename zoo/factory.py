"""The only place where a name becomes an object: attention mechanisms, models and captioners."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from zoo.functional.validation import check_positive_int
from zoo.layers.attention_slots import TokenAttentionFactory
from zoo.models.backbone import Backbone, attention_registry
from zoo.models.captioner import Captioner
from zoo.registry import ATTENTION, CAPTIONERS, MODELS, TOKEN_ATTENTION, suggest

PUBLISHED_TOKEN_ATTENTION = "multi_head"
"""What the blocks of a transformer have where no attention is named."""

_ATTENTION_OPTIONS = ("attention", "attention_args", "attention_stages")
_SET_BY_CAPTIONERS = ("name", "num_classes", "in_channels")
_PURPOSES = {ATTENTION.kind: "feature maps", TOKEN_ATTENTION.kind: "tokens"}


def list_attention() -> list[str]:
    """Return the names of all attention mechanisms for feature maps, sorted."""
    return list(ATTENTION)


def list_token_attention() -> list[str]:
    """Return the names of all attention mechanisms for tokens, sorted."""
    return list(TOKEN_ATTENTION)


def list_attention_for(model: str) -> list[str]:
    """Return the names of the mechanisms that a model takes, sorted: for feature maps, or self attentions.

    >>> "se" in list_attention_for("resnet20"), "window" in list_attention_for("vit_tiny_patch4_32")
    (True, True)
    """
    registry = attention_registry(model)
    return [name for name in registry if registry is ATTENTION or not _inputs_besides_tokens(registry[name])]


def list_models() -> list[str]:
    """Return the names of all models, sorted."""
    return list(MODELS)


def list_captioners() -> list[str]:
    """Return the names of all captioners, sorted."""
    return list(CAPTIONERS)


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


def check_attention(model: str, attention: str, attention_args: Mapping[str, Any] | None = None) -> None:
    """Check that a model takes an attention with these options, by building a narrow one.

    Raises:
        ValueError: The model takes no such attention, or an option or its value is not known to the mechanism.
    """
    mechanism, args = _resolve_mechanism(model, attention, attention_args)
    if attention_registry(model) is ATTENTION:
        mechanism(64, **args)
    else:
        mechanism(64, num_heads=2, **args)


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
        attention: The mechanism put at the model's documented places, one out of :func:`list_attention_for`; ``None``
            for the model as published (MobileNetV3 keeps its own squeeze-and-excitation, a vision transformer its
            multi-head attention), ``"none"`` for no attention anywhere, which a transformer cannot be without.
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
    given, resolved_attention_args = _resolve_attention(name, attention, attention_args, attention_stages)
    model = build(**given, **resolved)
    model.config = {
        "name": name,
        "attention": attention,
        "attention_args": resolved_attention_args,
        "attention_stages": None if attention_stages is None else list(attention_stages),
        **resolved,
    }
    return model


def create_captioner(
    name: str,
    *,
    num_classes: int,
    max_words: int,
    encoder: str = "resnet20",
    encoder_args: Mapping[str, Any] | None = None,
    in_channels: int = 3,
    **decoder_args: Any,
) -> Captioner:
    """Create the captioner ``name``, with random weights.

    Args:
        name: A name out of :func:`list_captioners`.
        num_classes: Words that can be read and written, special ones included: the number of logits.
        max_words: Longest caption that is written.
        encoder: The model that looks at the image, a name out of :func:`list_models`.
        encoder_args: Its options, as in :func:`create_model`.
        in_channels: Channels of the image, at least 1.
        decoder_args: Options of the decoder, such as ``embed_dim``.

    Returns:
        The captioner; its ``config`` holds all arguments resolved, as plain values that make the same network again.

    Raises:
        ValueError: A name, an option or a value is not known.

    >>> import torch
    >>> captioner = create_captioner("captioner_recurrent", num_classes=20, max_words=8)
    >>> captioner(torch.zeros(2, 3, 32, 32), torch.tensor([[1, 4, 5], [1, 6, 4]])).shape
    torch.Size([2, 3, 20])
    """
    build = CAPTIONERS[name]
    given = dict(encoder_args or {})
    for option in _SET_BY_CAPTIONERS:
        if option in given:
            raise ValueError(f"encoder_args: the captioner itself sets {option} of its encoder")
    options = {"num_classes": num_classes, "max_words": max_words, **decoder_args}
    resolved = _resolve_options(f"captioner {name!r}", build, options, apart=("encoder",))
    captioner: Captioner = build(
        encoder=lambda: create_model(encoder, num_classes=1, in_channels=in_channels, **given), **resolved
    )
    of_encoder = {key: value for key, value in captioner.encoder.config.items() if key not in _SET_BY_CAPTIONERS}
    captioner.config = {
        "name": name,
        "encoder": encoder,
        "encoder_args": of_encoder,
        "in_channels": in_channels,
        **resolved,
    }
    return captioner


def _resolve_attention(
    model: str,
    attention: str | None,
    attention_args: Mapping[str, Any] | None,
    attention_stages: Sequence[int] | None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the model's arguments about attention, and the mechanism's options with all defaults filled in."""
    is_of_tokens = attention_registry(model) is TOKEN_ATTENTION
    if is_of_tokens and attention_stages is not None:
        raise ValueError(f"attention_stages ({attention_stages!r}) has no effect: every block of {model} has attention")
    if is_of_tokens and attention == "none":
        raise ValueError(
            f"{model} cannot be without attention: leave it out for {PUBLISHED_TOKEN_ATTENTION}, or name one of "
            f"{', '.join(list_attention_for(model))}"
        )
    if attention is None or attention == "none":
        useless = {"attention_args": attention_args or None, "attention_stages": attention_stages}
        for label, value in useless.items():
            if value is not None:
                raise ValueError(f"{label} ({value!r}) has no effect with attention={attention!r}; name a mechanism")
        return ({} if attention is None else {"attention": None}), None
    mechanism, args = _resolve_mechanism(model, attention, attention_args)
    factory = {"attention": partial(mechanism, **args)}
    return (factory if is_of_tokens else {**factory, "attention_stages": attention_stages}), args


def _resolve_mechanism(
    model: str, attention: str, attention_args: Mapping[str, Any] | None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the mechanism and its options, defaults filled in, without those that the model itself sets.

    Raises:
        ValueError: The model takes no such attention, or an option is not known to the mechanism.
    """
    registry, args = attention_registry(model), attention_args or {}
    other = TOKEN_ATTENTION if registry is ATTENTION else ATTENTION
    if attention not in registry and attention in other:
        raise ValueError(
            f"attention {attention!r} is for {_PURPOSES[other.kind]}, and model {model!r} takes one for "
            f"{_PURPOSES[registry.kind]}: {', '.join(list_attention_for(model))}"
        )
    mechanism = registry[attention]
    if registry is ATTENTION:
        return mechanism, _resolve_options(f"attention {attention!r}", mechanism, args)
    if missing := _inputs_besides_tokens(mechanism):
        raise ValueError(
            f"attention {attention!r} cannot stand in {model!r}: it takes {', '.join(missing)} besides tokens"
        )
    for option in _SET_BY_MODELS:
        if option in args:
            raise ValueError(f"attention_args: {model!r} itself sets {option} of its attentions, from its own options")
    owner = f"token attention {attention!r}"
    return mechanism, _resolve_options(owner, mechanism, args, apart=_SET_BY_MODELS)


def _inputs_besides_tokens(mechanism: Any) -> list[str]:
    """Return what the forward of an attention for tokens must be given besides the tokens themselves."""
    _, _, *others = inspect.signature(mechanism.forward).parameters.values()
    return [other.name for other in others if other.default is other.empty and other.kind is not other.VAR_KEYWORD]


_SET_BY_MODELS = tuple(
    parameter.name
    for parameter in inspect.signature(TokenAttentionFactory.__call__).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
)


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
