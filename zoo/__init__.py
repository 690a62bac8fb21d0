"""A vision attention model zoo: backbones and attention mechanisms by name, with verified weights.

>>> import torch
>>> model = create_model("resnet20", attention="cbam", num_classes=10).eval()
>>> model(torch.zeros(1, 3, 32, 32)).shape
torch.Size([1, 10])
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo import factory
from zoo.factory import (
    create_attention,
    create_token_attention,
    list_attention,
    list_captioners,
    list_models,
    list_token_attention,
)

if TYPE_CHECKING:
    from zoo.data import create_data, list_data
    from zoo.insertion import (
        attention_parameters,
        freeze_backbone,
        insert_attention,
        remove_attention,
        unfreeze_backbone,
    )
    from zoo.models.backbone import Backbone
    from zoo.models.captioner import Captioner
    from zoo.pretrained import WeightCard, list_weights, load_pretrained

__version__ = "0.1.0"

__all__ = [
    "WeightCard",
    "__version__",
    "attention_parameters",
    "create_attention",
    "create_captioner",
    "create_data",
    "create_model",
    "create_token_attention",
    "freeze_backbone",
    "insert_attention",
    "list_attention",
    "list_captioners",
    "list_data",
    "list_models",
    "list_token_attention",
    "list_weights",
    "load_pretrained",
    "remove_attention",
    "unfreeze_backbone",
]

# Imported at the first use, so that importing the package costs little more than importing torch.
_LAZY = {
    "WeightCard": "zoo.pretrained",
    "list_weights": "zoo.pretrained",
    "load_pretrained": "zoo.pretrained",
    "create_data": "zoo.data",
    "list_data": "zoo.data",
    "attention_parameters": "zoo.insertion",
    "freeze_backbone": "zoo.insertion",
    "insert_attention": "zoo.insertion",
    "remove_attention": "zoo.insertion",
    "unfreeze_backbone": "zoo.insertion",
}


def create_model(
    name: str,
    *,
    attention: str | None = None,
    attention_args: Mapping[str, Any] | None = None,
    attention_stages: Sequence[int] | None = None,
    num_classes: int | None = None,
    in_channels: int = 3,
    stem: str | None = None,
    pretrained: str | None = None,
    **model_args: Any,
) -> "Backbone":
    """Create the model ``name``; the arguments are those of :func:`zoo.factory.create_model`, and one more.

    Args:
        name: A name out of :func:`list_models`.
        attention: The mechanism put at the model's documented places, ``None`` for the model as published, ``"none"``
            for no attention anywhere.
        attention_args: Options of the mechanism.
        attention_stages: Stages, counted from 1, that get it; ``None`` for all.
        num_classes: Number of logits; ``None`` for the family's own.
        in_channels: Channels of the image, at least 1.
        stem: ``"cifar"`` or ``"imagenet"``; ``None`` for the family's own.
        pretrained: Trained weights: a name out of :func:`list_weights`, a run folder, a file of tensors, an http
            address, ``"timm:NAME"``, ``"torchvision:NAME"`` or ``"hf:OWNER/NAME"``; ``None`` for random weights.
            ``num_classes`` is then the weights' own unless given; a head for another number of classes and filters
            for other channels are adapted, gates that the weights do not have start as the identity, and every such
            thing is said in one line. All else must fit exactly.
        model_args: Options of the model, such as ``width_multiplier``.

    Raises:
        ValueError: A name, an option or a value is not known, an option would have no effect, or the weights do
            not fit.
        OSError: The weights cannot be fetched.
    """
    arguments = {
        "attention": attention,
        "attention_args": attention_args,
        "attention_stages": attention_stages,
        "num_classes": num_classes,
        "in_channels": in_channels,
        "stem": stem,
        **model_args,
    }
    if pretrained is None:
        return factory.create_model(name, **arguments)
    from zoo.pretrained import create_pretrained

    return create_pretrained(name, pretrained, **arguments)[0]


def create_captioner(
    name: str,
    *,
    num_classes: int,
    max_words: int,
    encoder: str = "resnet20",
    encoder_args: Mapping[str, Any] | None = None,
    encoder_pretrained: str | None = None,
    in_channels: int = 3,
    **decoder_args: Any,
) -> "Captioner":
    """Create the captioner ``name``; the arguments are those of :func:`zoo.factory.create_captioner`, and one more.

    Args:
        name: A name out of :func:`list_captioners`.
        num_classes: Words that can be read and written, special ones included: the number of logits.
        max_words: Longest caption that is written.
        encoder: The model that looks at the image, a name out of :func:`list_models`.
        encoder_args: Its options, as in :func:`create_model`.
        encoder_pretrained: Trained weights of the encoder, as ``pretrained`` in :func:`create_model`; ``None`` for
            random ones.
        in_channels: Channels of the image, at least 1.
        decoder_args: Options of the decoder, such as ``embed_dim``.

    Raises:
        ValueError: A name, an option or a value is not known, or the weights do not fit.
        OSError: The weights cannot be fetched.
    """
    captioner = factory.create_captioner(
        name,
        num_classes=num_classes,
        max_words=max_words,
        encoder=encoder,
        encoder_args=encoder_args,
        in_channels=in_channels,
        **decoder_args,
    )
    if encoder_pretrained is not None:
        from zoo.pretrained import load_encoder

        load_encoder(captioner, encoder_pretrained)
    return captioner


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
