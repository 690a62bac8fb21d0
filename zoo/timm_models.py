"""The zoo's models under timm's names: ``import zoo.timm_models``, then ``timm.create_model("zoo_resnet20_cbam")``.

Every model is registered as ``zoo_<model>``, and as ``zoo_<model>_<attention>`` with each mechanism that it takes;
weights with a card are pretrained tags, as in ``zoo_resnet20_cbam.cifar10``. What timm's scripts ask of a model is
there: ``num_classes``, ``pretrained_cfg``, ``forward_features``, ``forward_head``, ``get_classifier``,
``reset_classifier``.
Names and values in the state dict are those of the zoo.
"""

import dataclasses
import functools
import inspect
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import torch
from timm.models import PretrainedCfg, register_model
from timm.models._pretrained import DefaultCfg
from torch import Tensor, nn

from zoo.factory import create_model, list_attention_for, list_models
from zoo.models.backbone import Backbone, global_mean, linear
from zoo.models.resnet import ResNet
from zoo.models.vision_transformer import VisionTransformer
from zoo.preprocessing import PRESETS
from zoo.pretrained import WeightCard, create_pretrained, list_weights, load_card
from zoo.pretrained.name_maps import family_of
from zoo.registry import MODELS, suggest

__all__: list[str] = []  # timm's decorator adds the names
default_cfgs: dict[str, DefaultCfg] = {}

UNTRAINED = "untrained"
NEUTRAL = {"drop_rate": 0.0, "drop_path_rate": 0.0, "global_pool": "avg", "features_only": False}
"""Options that timm's scripts give to every model, and the value that asks for nothing."""


class TimmBackbone(Backbone):
    """What timm expects of a model, mixed into the class of one of ours; parts and their names stay as they are."""

    num_classes: int
    num_features: int
    head_hidden_size: int
    pretrained_cfg: dict[str, Any]
    default_cfg: dict[str, Any]

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the last map, (batch, num_features, height, width), or tokens, (batch, tokens, num_features)."""
        if isinstance(self, VisionTransformer):
            return self.encode(images)
        if isinstance(self, ResNet):
            features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
            for stage in self.stages:
                features = getattr(self, stage)(features)
            return features
        return cast(Tensor, self.get_submodule("features")(images))

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool features, and return the logits, or with ``pre_logits`` what the last layer would take."""
        vectors = self.summarise(features) if isinstance(self, VisionTransformer) else global_mean(features)
        for layer in self._head_layers():
            if not (pre_logits and layer is self.get_classifier()):
                vectors = layer(vectors)
        return vectors

    def get_classifier(self) -> nn.Module:
        """Return the last linear layer, or the identity after ``reset_classifier(0)``."""
        return self.get_submodule(family_of(self.config["name"]).head)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a fresh last layer for ``num_classes`` classes in place, or none for 0."""
        _refuse_unless_neutral({} if global_pool is None else {"global_pool": global_pool})
        fresh: nn.Module = linear(self.head_hidden_size, num_classes) if num_classes else nn.Identity()
        like = next(self.parameters())
        self.set_submodule(family_of(self.config["name"]).head, fresh.to(like.device, like.dtype))
        self.num_classes = num_classes
        self.config = {**self.config, "num_classes": num_classes}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Raise ValueError when it is to be switched on: these models do not have it."""
        if enable:
            raise ValueError("gradient checkpointing has no effect: the zoo's models do not have it")

    def _head_layers(self) -> list[nn.Module]:
        head = self.get_submodule(family_of(self.config["name"]).head.partition(".")[0])
        return list(head.children()) if isinstance(head, nn.Sequential) else [head]


@functools.cache
def _timm_class(kind: type[Backbone]) -> type[TimmBackbone]:
    """Return a subclass of one of our classes with timm's interface; pickle finds it in this module by its name."""
    name = f"Timm{kind.__name__}"
    globals()[name] = type(name, (TimmBackbone, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    return cast(type[TimmBackbone], globals()[name])


def adopt(model: Backbone, config: PretrainedCfg) -> TimmBackbone:
    """Give a model made by :func:`zoo.create_model` timm's interface, in place."""
    model.__class__ = _timm_class(type(model))  # type: ignore[arg-type] # a class of modules can be hashed
    adopted = cast(TimmBackbone, model)
    layers = [layer for layer in adopted._head_layers() if isinstance(layer, nn.Linear)]
    adopted.num_features, adopted.head_hidden_size = layers[0].in_features, layers[-1].in_features
    adopted.num_classes = layers[-1].out_features
    adopted.pretrained_cfg = adopted.default_cfg = config.to_dict()
    return adopted


def build(
    name: str,
    attention: str | None,
    *,
    pretrained: bool = False,
    pretrained_cfg: str | Mapping[str, Any] | PretrainedCfg | None = None,
    pretrained_cfg_overlay: Mapping[str, Any] | None = None,
    cache_dir: Any = None,  # noqa: ARG001 # timm gives it to every model
    in_chans: int = 3,
    num_classes: int | None = None,
    **options: Any,
) -> TimmBackbone:
    """Create a model as ``timm.create_model`` asks for it.

    Args:
        name: A name out of :func:`zoo.list_models`.
        attention: A mechanism, or ``None`` for the model as published.
        pretrained: Load the weights of a tag, whose model arguments are then the defaults.
        pretrained_cfg: The tag, or a configuration of timm that names it; the first tag by default.
        pretrained_cfg_overlay: Entries in place of the configuration's.
        cache_dir: Taken and not used: weights lie where their card says.
        in_chans: Channels of the image.
        num_classes: Number of logits; 0 for none.
        options: Of the model, and those that timm gives to every model.

    Raises:
        ValueError: There are no such weights, or an option would have no effect.
    """
    architecture = _architecture(name, attention)
    options = _translate(name, options)
    config = _choose_config(architecture, pretrained_cfg, pretrained=pretrained)
    config = dataclasses.replace(config, **(pretrained_cfg_overlay or {}))
    arguments = {"attention": attention, "num_classes": num_classes or None, "in_channels": in_chans, **options}
    if pretrained:
        card = load_card(cast(str, config.file))
        own = {key: value for key, value in card.model.items() if key not in {"name", "num_classes"}}
        if attention is None and own.get("attention") == "none":  # trained without what the published model has
            arguments["attention"] = "none"
        model, _ = create_pretrained(name, cast(str, config.file), **{**own, **arguments})
    else:
        model = create_model(name, **arguments)
    adopted = adopt(model, config)
    if num_classes == 0:
        adopted.reset_classifier(0)
    return adopted


def _translate(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return timm's options under our names, without those that ask for nothing."""
    accepted = inspect.signature(MODELS[name]).parameters
    translated = dict(options)
    for theirs, ours in (("drop_rate", "dropout"), ("img_size", "image_size")):
        if ours in accepted and theirs in translated:
            translated[ours] = translated.pop(theirs)
    _refuse_unless_neutral({option: value for option, value in translated.items() if option not in accepted})
    return {option: value for option, value in translated.items() if option in accepted or option not in NEUTRAL}


def _refuse_unless_neutral(options: Mapping[str, Any]) -> None:
    for option, neutral in NEUTRAL.items():
        if options.get(option, neutral) != neutral:
            raise ValueError(
                f"{option} ({options[option]!r}) has no effect on the zoo's models; leave it at {neutral!r}"
            )


def _choose_config(architecture: str, given: Any, *, pretrained: bool) -> PretrainedCfg:
    """Return the configuration of a tag, of the default one where none is given."""
    known = default_cfgs[architecture]
    tag = (
        given
        if isinstance(given, str)
        else given.get("tag")
        if isinstance(given, Mapping)
        else getattr(given, "tag", None)
    )
    config = known.cfgs.get(tag or known.tags[0])
    if config is None or (pretrained and not config.file):
        tags = [tag for tag in known.tags if tag != UNTRAINED]
        asked = f"{architecture}.{tag}" if tag else architecture
        raise ValueError(
            f"there are no weights {asked!r}.{suggest(tag or '', tags)} Known: {', '.join(tags) or 'none'}"
        )
    return config


def _architecture(name: str, attention: str | None) -> str:
    return f"zoo_{name}" if attention is None else f"zoo_{name}_{attention}"


def _architecture_of_card(card: WeightCard) -> str:
    """Return the timm name of a card's model; timm has no name of its own for a model without its published gates."""
    attention = card.model.get("attention")
    return _architecture(card.model["name"], None if attention == "none" else attention)


def _config_of_card(card: WeightCard) -> PretrainedCfg:
    """Return what timm wants to know of weights."""
    family = family_of(card.model["name"])
    preprocessing = card.preprocessing
    resize, side = preprocessing["resize"], max(preprocessing["height"], preprocessing["width"])
    return PretrainedCfg(
        file=str(card.path),
        architecture=_architecture_of_card(card),
        tag=_tag(card),
        input_size=card.input_size,
        interpolation=preprocessing["interpolation"],
        crop_pct=1.0 if resize is None else side / resize,
        crop_mode="squash" if resize is None else "center",
        mean=tuple(preprocessing["mean"]),
        std=tuple(preprocessing["std"]),
        num_classes=card.model["num_classes"],
        first_conv=family.stem,
        classifier=family.head,
        license=card.licence,
        description=card.source,
    )


def _tag(card: WeightCard) -> str:
    """Return what follows the model in the name of weights; the whole name where the model has other options."""
    return card.name.removeprefix(f"{_architecture_of_card(card)}.".removeprefix("zoo_"))


@functools.cache
def _as_published(name: str) -> Backbone:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return create_model(name)


def _config_untrained(name: str, attention: str | None) -> PretrainedCfg:
    """Return sizes of a model without weights."""
    published = _as_published(name)
    preset = PRESETS["cifar10" if published.image_size == (32, 32) else "imagenet_224"]
    family = family_of(name)
    return PretrainedCfg(
        architecture=_architecture(name, attention),
        tag=UNTRAINED,
        input_size=(published.config["in_channels"], preset.height, preset.width),
        interpolation=preset.interpolation,
        crop_pct=1.0 if preset.resize is None else preset.height / preset.resize,
        mean=preset.mean,
        std=preset.std,
        num_classes=published.config["num_classes"],
        first_conv=family.stem,
        classifier=family.head,
    )


def _register(name: str, attention: str | None, cards: list[WeightCard]) -> None:
    architecture = _architecture(name, attention)
    cards = sorted(cards, key=lambda card: _tag(card) == card.name)  # a model as it is named comes by default
    configs = {_tag(card): _config_of_card(card) for card in cards} or {UNTRAINED: _config_untrained(name, attention)}
    default_cfgs[architecture] = DefaultCfg(tags=deque(configs), cfgs=configs, is_pretrained=bool(cards))

    def create(pretrained: bool = False, **options: Any) -> TimmBackbone:
        return build(name, attention, pretrained=pretrained, **options)

    create.__name__ = create.__qualname__ = architecture
    create.__doc__ = f"Create the zoo's {name}{f' with {attention}' if attention else ''}; see :func:`build`."
    globals()[architecture] = register_model(create)


def _register_all() -> None:
    """Register every model with and without every mechanism, and the weights that come with the zoo as tags."""
    cards: dict[str, list[WeightCard]] = {}
    for card in map(load_card, list_weights()):
        cards.setdefault(_architecture_of_card(card), []).append(card)
    for name in list_models():
        for attention in (None, *list_attention_for(name)):
            _register(name, attention, cards.get(_architecture(name, attention), []))


_register_all()
