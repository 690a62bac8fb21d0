"""MobileNetV1: depthwise separable convolutions in a straight line."""

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn
from typing_extensions import override

from zoo.layers.attention_slots import AttentionFactory, AttentionSlots
from zoo.layers.conv_norm_act import ConvNormAct
from zoo.models.backbone import (
    Backbone,
    Stem,
    check_backbone_arguments,
    check_choice,
    fit_strides,
    global_mean,
    linear,
    make_divisible,
    number_stages,
)
from zoo.registry import MODELS

Activation = Literal["relu", "relu6"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "relu6": nn.ReLU6}

_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Output channels and stride of each block, from Table 1 of the paper."""


class DepthwiseSeparable(nn.Module):
    """A 3x3 depthwise and a 1x1 convolution, each with norm and activation, then the gate on the block's output.

    Order: depthwise, norm, activation, pointwise, norm, activation, attention; the gate is ``out_channels`` wide.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int,
        activation: type[nn.Module],
        attention: AttentionFactory | None,
    ) -> None:
        super().__init__()
        self.depthwise = ConvNormAct(in_channels, in_channels, stride=stride, groups=in_channels, activation=activation)
        self.pointwise = ConvNormAct(in_channels, out_channels, kernel_size=1, activation=activation)
        self.attention = None if attention is None else attention(out_channels)

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, out_channels, height / stride, width / stride)``."""
        features = self.pointwise(self.depthwise(features))
        return features if self.attention is None else self.attention(features)


@MODELS.register("mobilenet_v1")
class MobileNetV1(Backbone):
    """MobileNetV1, with attention at the end of every block.

    Convolutions start from He's normal distribution (fan-out), norms from 1 and 0, the classifier from
    ``N(0, 0.01^2)`` and 0. Stages are runs of blocks at one resolution: blocks 1; 2-3; 4-5; 6-11; 12-13.

    Args:
        attention: Builds the gate of a block from its output channels; ``None`` for none.
        attention_stages: Stages, counted from 1, that get gates; ``None`` for all.
        num_classes: Number of logits, at least 1.
        in_channels: Channels of the image, at least 1.
        stem: ``"imagenet"`` divides the sides by 32 in all; ``"cifar"`` by 8: the stem and the second block keep
            the resolution.
        width_multiplier: Scales all widths, rounded to multiples of 8; positive.
        activation: ``"relu"`` as in the paper, or ``"relu6"``, clipped at 6, as in the authors' code and in timm.

    Shape:
        ``(batch, in_channels, height, width)`` to ``(batch, num_classes)``.

    Raises:
        ValueError: An argument is outside its range.

    Source: Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications", 2017,
    https://arxiv.org/abs/1704.04861
    """

    classifier_names = ("classifier",)

    def __init__(
        self,
        *,
        attention: AttentionFactory | None = None,
        attention_stages: Sequence[int] | None = None,
        num_classes: int = 1000,
        in_channels: int = 3,
        stem: Stem = "imagenet",
        width_multiplier: float = 1.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        check_backbone_arguments(num_classes, in_channels, stem, width_multiplier)
        check_choice("activation", activation, get_args(Activation))
        act = _ACTIVATIONS[activation]
        slots = AttentionSlots(attention, attention_stages)
        block_strides = [stride for _, stride in _BLOCKS]
        stem_stride, *strides = fit_strides([2, *block_strides], stem)
        stages = number_stages(block_strides)
        channels = make_divisible(32 * width_multiplier)
        layers: list[nn.Module] = [ConvNormAct(in_channels, channels, stride=stem_stride, activation=act)]
        for (published_channels, _), stride, stage in zip(_BLOCKS, strides, stages, strict=True):
            out_channels = make_divisible(published_channels * width_multiplier)
            slot = slots.slot(f"features.{len(layers)}.attention", stage)
            layers.append(DepthwiseSeparable(channels, out_channels, stride=stride, activation=act, attention=slot))
            channels = out_channels
        self.features = nn.Sequential(*layers)
        self.feature_channels = channels
        self.classifier = linear(channels, num_classes)
        self._attention_places = slots.places()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ``(batch, in_channels, height, width)`` images."""
        return self.classifier(global_mean(self.feature_map(images)))

    @override
    def feature_map(self, images: Tensor) -> Tensor:
        features: Tensor = self.features(images)
        return features
