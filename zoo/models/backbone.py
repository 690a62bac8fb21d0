"""What every image classifier of the zoo shares: its arguments' rules, its classifier and its list of gates."""

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn

from zoo.functional.validation import check_positive_int
from zoo.layers.attention_slots import AttentionPlace, TokenAttentionFactory
from zoo.registry import ATTENTION, MODELS, TOKEN_ATTENTION, Registry

Stem = Literal["cifar", "imagenet"]
"""``imagenet`` divides the input's sides by 32 in all; ``cifar`` keeps the resolution longer, for small images."""


class Backbone(nn.Module):
    """An image classifier: ``forward`` maps ``(batch, in_channels, height, width)`` to ``(batch, num_classes)`` logits.

    ``config`` holds the plain keyword arguments with which ``zoo.create_model`` makes the same network again.
    """

    config: dict[str, Any]
    feature_channels: int
    """Channels of :meth:`feature_map`."""
    classifier_names: ClassVar[tuple[str, ...]]
    """The parts that make logits of the feature map, which :meth:`feature_map` does not need."""
    _attention_places: tuple[AttentionPlace, ...] = ()

    def feature_map(self, images: Tensor) -> Tensor:
        """Return what the classifier pools, ``(batch, feature_channels, rows, columns)``: the image in features.

        Args:
            images: ``(batch, in_channels, height, width)``
        """
        raise NotImplementedError

    def end_at_stage(self, stage: int) -> None:
        """Drop what comes behind a stage, so that :meth:`feature_map` is that stage's: finer, and cheaper to make.

        Args:
            stage: Counted from 1.

        Raises:
            ValueError: There is no such stage, or the network cannot end at one.
        """
        raise ValueError(f"{self.config['name']} cannot end at stage {stage}: only ResNets can end early")

    def attention_places(self) -> tuple[AttentionPlace, ...]:
        """Return every gate in the order of the network, with its stage and the channels of the map it gates.

        Attention between tokens is no gate: a vision transformer has none.
        """
        return self._attention_places

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images the network is made for; others work too."""
        return (32, 32) if self.config["stem"] == "cifar" else (224, 224)


def attention_registry(model: str) -> Registry:
    """Return where the attentions stand that the model of this name takes: those for feature maps or those for tokens.

    The factory that the model's builder asks for tells.

    >>> attention_registry("resnet20").kind, attention_registry("vit_tiny_patch4_32").kind
    ('attention', 'token attention')
    """
    factory = inspect.signature(MODELS[model]).parameters["attention"].annotation
    return TOKEN_ATTENTION if factory == TokenAttentionFactory | None else ATTENTION


def check_backbone_arguments(num_classes: int, in_channels: int, stem: str, width_multiplier: float) -> None:
    """Check the arguments all backbones take.

    Raises:
        ValueError: A count is no integer of at least 1, the stem is unknown, or the width is not positive.
    """
    check_positive_int("num_classes", num_classes)
    check_positive_int("in_channels", in_channels)
    check_choice("stem", stem, get_args(Stem))
    if isinstance(width_multiplier, bool) or not isinstance(width_multiplier, int | float):
        raise ValueError(f"width_multiplier ({width_multiplier!r}) must be a number")
    if not 0 < width_multiplier < float("inf"):
        raise ValueError(f"width_multiplier ({width_multiplier}) must be positive and finite")


def check_choice(label: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a ValueError naming the choices unless ``value`` is one of them."""
    if value not in choices:
        raise ValueError(f"{label} ({value!r}) must be one of {', '.join(choices)}")


def make_divisible(channels: float, divisor: int = 8) -> int:
    """Round a channel count to a multiple of ``divisor``, at least one multiple and never below 90 % of the count.

    The rule of the MobileNets' reference code.

    >>> [make_divisible(channels) for channels in (3, 20, 11.2, 33)]
    [8, 24, 16, 32]
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def fit_strides(strides: Sequence[int], stem: Stem) -> list[int]:
    """Return the strides of stem and blocks for the kind of image: ``cifar`` turns the first two strides of 2 into 1.

    A MobileNet then divides the sides by 8 in all instead of 32, and a 32x32 image ends as a 4x4 map.

    >>> fit_strides([2, 1, 2, 1, 2], "cifar")
    [1, 1, 1, 1, 2]
    """
    fitted, to_drop = list(strides), 2 if stem == "cifar" else 0
    for index, stride in enumerate(fitted):
        if stride == 2 and to_drop:
            fitted[index], to_drop = 1, to_drop - 1
    return fitted


def number_stages(block_strides: Sequence[int]) -> list[int]:
    """Number the blocks' stages from 1: as published, a stage is a run of blocks that work at one resolution.

    >>> number_stages([1, 2, 1, 2, 1])
    [1, 2, 2, 3, 3]
    """
    return [1 + sum(stride == 2 for stride in block_strides[1 : index + 1]) for index in range(len(block_strides))]


def linear(in_features: int, out_features: int) -> nn.Linear:
    """Create a linear layer with weights from ``N(0, 0.01^2)`` and biases 0, so that the first logits are near 0."""
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    return layer


def global_mean(features: Tensor) -> Tensor:
    """Average a map over height and width: ``(batch, channels, height, width)`` to ``(batch, channels)``."""
    return features.mean(dim=(2, 3))
