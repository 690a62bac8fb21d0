"""MobileNetV2: inverted residuals with linear bottlenecks."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn
from typing_extensions import override

from zoo.layers.attention_slots import AttentionFactory, AttentionSlots
from zoo.layers.conv_norm_act import ConvNormAct, convolution
from zoo.models.backbone import (
    Backbone,
    Stem,
    check_backbone_arguments,
    fit_strides,
    global_mean,
    linear,
    make_divisible,
    number_stages,
)
from zoo.registry import MODELS

_ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, output channels, number of blocks and stride of the first, from Table 2 of the paper."""


class InvertedResidual(nn.Module):
    """Expand, filter depthwise, gate, project; a skip where the shape is kept.

    Order: 1x1 expansion, norm, ReLU6, 3x3 depthwise, norm, ReLU6, attention, 1x1 projection, norm. The gate has the
    expanded width. An ``expand_ratio`` of 1 leaves the expansion out. Children of ``conv`` are numbered as in
    torchvision, with or without ``conv.attention`` between them.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int,
        expand_ratio: int,
        attention: AttentionFactory | None,
    ) -> None:
        super().__init__()
        hidden_channels = in_channels * expand_ratio
        steps: list[nn.Module] = []
        if expand_ratio != 1:
            steps.append(ConvNormAct(in_channels, hidden_channels, 1, activation=nn.ReLU6))
        steps.append(
            ConvNormAct(hidden_channels, hidden_channels, stride=stride, groups=hidden_channels, activation=nn.ReLU6)
        )
        layers = OrderedDict((str(index), step) for index, step in enumerate(steps))
        if attention is not None:
            layers["attention"] = attention(hidden_channels)
        layers[str(len(steps))] = convolution(hidden_channels, out_channels, 1)
        layers[str(len(steps) + 1)] = nn.BatchNorm2d(out_channels)
        self.conv = nn.Sequential(layers)
        self.has_skip = stride == 1 and in_channels == out_channels

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, out_channels, height / stride, width / stride)``."""
        return features + self.conv(features) if self.has_skip else self.conv(features)


@MODELS.register("mobilenet_v2")
class MobileNetV2(Backbone):
    """MobileNetV2, with attention after the depthwise step of every block; parts are named as in torchvision.

    Convolutions start from He's normal distribution (fan-out), norms from 1 and 0, the classifier from
    ``N(0, 0.01^2)`` and 0. Stages are runs of blocks at one resolution, in output channels: 16; 24; 32; 64 and 96;
    160 and 320.

    Args:
        attention: Builds the gate of a block from its expanded channels; ``None`` for none.
        attention_stages: Stages, counted from 1, that get gates; ``None`` for all.
        num_classes: Number of logits, at least 1.
        in_channels: Channels of the image, at least 1.
        stem: ``"imagenet"`` divides the sides by 32 in all; ``"cifar"`` by 8: the stem and the second stage keep
            the resolution.
        width_multiplier: Scales all widths, rounded to multiples of 8, the last layer's only upwards; positive.
        dropout: Probability of dropping a feature before the classifier, 0 to 1.

    Shape:
        ``(batch, in_channels, height, width)`` to ``(batch, num_classes)``.

    Raises:
        ValueError: An argument is outside its range.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018,
    https://arxiv.org/abs/1801.04381
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
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        check_backbone_arguments(num_classes, in_channels, stem, width_multiplier)
        slots = AttentionSlots(attention, attention_stages)
        blocks = [
            (expand_ratio, out_channels, stride if index == 0 else 1)
            for expand_ratio, out_channels, depth, stride in _ROWS
            for index in range(depth)
        ]
        block_strides = [stride for _, _, stride in blocks]
        stem_stride, *strides = fit_strides([2, *block_strides], stem)
        stages = number_stages(block_strides)
        channels = make_divisible(32 * width_multiplier)
        layers: list[nn.Module] = [ConvNormAct(in_channels, channels, stride=stem_stride, activation=nn.ReLU6)]
        for (expand_ratio, published_channels, _), stride, stage in zip(blocks, strides, stages, strict=True):
            out_channels = make_divisible(published_channels * width_multiplier)
            slot = slots.slot(f"features.{len(layers)}.conv.attention", stage)
            layers.append(
                InvertedResidual(channels, out_channels, stride=stride, expand_ratio=expand_ratio, attention=slot)
            )
            channels = out_channels
        last_channels = make_divisible(1280 * max(1.0, width_multiplier))
        layers.append(ConvNormAct(channels, last_channels, 1, activation=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.feature_channels = last_channels
        self.classifier = nn.Sequential(nn.Dropout(dropout), linear(last_channels, num_classes))
        self._attention_places = slots.places()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ``(batch, in_channels, height, width)`` images."""
        return self.classifier(global_mean(self.feature_map(images)))

    @override
    def feature_map(self, images: Tensor) -> Tensor:
        features: Tensor = self.features(images)
        return features
