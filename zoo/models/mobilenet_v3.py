"""MobileNetV3, small and large: inverted residuals with their own squeeze-and-excitation and hard swish."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

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

_ConvNormAct = partial(ConvNormAct, eps=0.001, momentum=0.01)


class HardSqueezeExcitation(nn.Module):
    """MobileNetV3's own gate: ``s = hard_sigmoid(W2 relu(W1 z + b1) + b2)`` with ``z`` the mean over height and width.

    The hidden width is a quarter of the channels, rounded to a multiple of 8; ``hard_sigmoid(x) = clip(x / 6 + 0.5,
    0, 1)`` is 0 up to -3 and 1 from 3 on. Layers are 1x1 convolutions, named as in torchvision.

    Args:
        channels: Channels of the map, at least 1.

    Shape:
        ``(batch, channels, height, width)``, kept.

    >>> import torch
    >>> HardSqueezeExcitation(72)(torch.zeros(2, 72, 5, 5)).shape
    torch.Size([2, 72, 5, 5])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.hidden_channels = make_divisible(channels // 4)
        self.fc1 = convolution(channels, self.hidden_channels, 1, bias=True)
        self.activation = nn.ReLU()
        self.fc2 = convolution(self.hidden_channels, channels, 1, bias=True)
        self.gate_activation = nn.Hardsigmoid()

    def forward(self, features: Tensor) -> Tensor:
        """Gate ``(batch, channels, height, width)``."""
        squeezed = features.mean(dim=(2, 3), keepdim=True)
        return features * self.gate_activation(self.fc2(self.activation(self.fc1(squeezed))))


class _Row(NamedTuple):
    kernel_size: int
    hidden_channels: int
    out_channels: int
    gated: bool
    activation: type[nn.Module]
    stride: int


_SMALL = (
    _Row(3, 16, 16, True, nn.ReLU, 2),
    _Row(3, 72, 24, False, nn.ReLU, 2),
    _Row(3, 88, 24, False, nn.ReLU, 1),
    _Row(5, 96, 40, True, nn.Hardswish, 2),
    _Row(5, 240, 40, True, nn.Hardswish, 1),
    _Row(5, 240, 40, True, nn.Hardswish, 1),
    _Row(5, 120, 48, True, nn.Hardswish, 1),
    _Row(5, 144, 48, True, nn.Hardswish, 1),
    _Row(5, 288, 96, True, nn.Hardswish, 2),
    _Row(5, 576, 96, True, nn.Hardswish, 1),
    _Row(5, 576, 96, True, nn.Hardswish, 1),
)
_LARGE = (
    _Row(3, 16, 16, False, nn.ReLU, 1),
    _Row(3, 64, 24, False, nn.ReLU, 2),
    _Row(3, 72, 24, False, nn.ReLU, 1),
    _Row(5, 72, 40, True, nn.ReLU, 2),
    _Row(5, 120, 40, True, nn.ReLU, 1),
    _Row(5, 120, 40, True, nn.ReLU, 1),
    _Row(3, 240, 80, False, nn.Hardswish, 2),
    _Row(3, 200, 80, False, nn.Hardswish, 1),
    _Row(3, 184, 80, False, nn.Hardswish, 1),
    _Row(3, 184, 80, False, nn.Hardswish, 1),
    _Row(3, 480, 112, True, nn.Hardswish, 1),
    _Row(3, 672, 112, True, nn.Hardswish, 1),
    _Row(5, 672, 160, True, nn.Hardswish, 2),
    _Row(5, 960, 160, True, nn.Hardswish, 1),
    _Row(5, 960, 160, True, nn.Hardswish, 1),
)
"""The blocks in order, from Tables 1 and 2 of the paper."""


class InvertedResidual(nn.Module):
    """Expand, filter depthwise, gate, project; a skip where the shape is kept.

    Order: 1x1 expansion, norm, activation, depthwise, norm, activation, attention, 1x1 projection, norm (the order of
    torchvision and of the published weights). The gate has the expanded width. The expansion is left out where it
    would keep the width. Children of ``block`` are numbered as in torchvision, where a gated block has its gate at
    the number between depthwise and projection; here that child is called ``attention``, and a state dict with
    torchvision's number for it is renamed while it loads.
    """

    def __init__(self, in_channels: int, row: _Row, *, stride: int, attention: AttentionFactory | None) -> None:
        super().__init__()
        hidden_channels, out_channels = row.hidden_channels, row.out_channels
        steps: list[nn.Module] = []
        if hidden_channels != in_channels:
            steps.append(_ConvNormAct(in_channels, hidden_channels, 1, activation=row.activation))
        steps.append(
            _ConvNormAct(
                hidden_channels,
                hidden_channels,
                row.kernel_size,
                stride=stride,
                groups=hidden_channels,
                activation=row.activation,
            )
        )
        layers = OrderedDict((str(index), step) for index, step in enumerate(steps))
        if attention is not None:
            layers["attention"] = attention(hidden_channels)
        self._gate_number = len(steps)
        layers[str(len(steps) + row.gated)] = _ConvNormAct(hidden_channels, out_channels, 1, activation=None)
        self.block = nn.Sequential(layers)
        self.has_skip = stride == 1 and in_channels == out_channels
        if isinstance(layers.get("attention"), HardSqueezeExcitation):
            self.register_load_state_dict_pre_hook(_rename_numbered_gate)

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, out_channels, height / stride, width / stride)``."""
        return features + self.block(features) if self.has_skip else self.block(features)


def _rename_numbered_gate(block: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Move the entries of torchvision's numbered gate to the child ``attention``."""
    old, new = f"{prefix}block.{block._gate_number}.fc", f"{prefix}block.attention.fc"
    for name in [name for name in state_dict if name.startswith(old)]:
        state_dict[new + name.removeprefix(old)] = state_dict.pop(name)


class MobileNetV3(Backbone):
    """MobileNetV3; parts are named as in torchvision, except for the gates, which are called ``attention``.

    Gates sit in the blocks where the paper has its squeeze-and-excitation, after the depthwise step. Convolutions
    start from He's normal distribution (fan-out), norms from 1 and 0, linear layers from ``N(0, 0.01^2)`` and 0.
    Stages are runs of blocks at one resolution, in output channels: small 16; 24; 40 and 48; 96 (none of the gates
    in stage 2), large 16; 24; 40; 80 and 112; 160 (gates from stage 3 on, in stage 4 only in the blocks of 112).

    Args:
        rows: The blocks at ``width_multiplier`` 1.
        head_channels: Width of the hidden layer of the classifier at ``width_multiplier`` 1.
        attention: Builds the gate of a gated block from its expanded channels; ``None`` for no gate.
        attention_stages: Stages, counted from 1, that get gates; ``None`` for all.
        num_classes: Number of logits, at least 1.
        in_channels: Channels of the image, at least 1.
        stem: ``"imagenet"`` divides the sides by 32 in all; ``"cifar"`` by 8: the stem and the first block that
            halves the map keep the resolution.
        width_multiplier: Scales all widths, rounded to multiples of 8; positive.
        dropout: Probability of dropping a feature before the last layer, 0 to 1.

    Shape:
        ``(batch, in_channels, height, width)`` to ``(batch, num_classes)``.

    Raises:
        ValueError: An argument is outside its range.

    Source: Howard et al., "Searching for MobileNetV3", ICCV 2019, https://arxiv.org/abs/1905.02244
    """

    classifier_names = ("classifier",)

    def __init__(
        self,
        rows: Sequence[_Row],
        head_channels: int,
        *,
        attention: AttentionFactory | None,
        attention_stages: Sequence[int] | None,
        num_classes: int,
        in_channels: int,
        stem: Stem,
        width_multiplier: float,
        dropout: float,
    ) -> None:
        super().__init__()
        check_backbone_arguments(num_classes, in_channels, stem, width_multiplier)
        slots = AttentionSlots(attention, attention_stages)
        stem_stride, *strides = fit_strides([2, *(row.stride for row in rows)], stem)
        stages = number_stages([row.stride for row in rows])
        channels = make_divisible(16 * width_multiplier)
        layers: list[nn.Module] = [_ConvNormAct(in_channels, channels, stride=stem_stride, activation=nn.Hardswish)]
        for published, stride, stage in zip(rows, strides, stages, strict=True):
            row = published._replace(
                hidden_channels=make_divisible(published.hidden_channels * width_multiplier),
                out_channels=make_divisible(published.out_channels * width_multiplier),
            )
            slot = slots.slot(f"features.{len(layers)}.block.attention", stage) if row.gated else None
            layers.append(InvertedResidual(channels, row, stride=stride, attention=slot))
            channels = row.out_channels
        layers.append(_ConvNormAct(channels, 6 * channels, 1, activation=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.feature_channels = 6 * channels
        head_channels = make_divisible(head_channels * width_multiplier)
        self.classifier = nn.Sequential(
            linear(6 * channels, head_channels), nn.Hardswish(), nn.Dropout(dropout), linear(head_channels, num_classes)
        )
        self._attention_places = slots.places()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ``(batch, in_channels, height, width)`` images."""
        return self.classifier(global_mean(self.feature_map(images)))

    @override
    def feature_map(self, images: Tensor) -> Tensor:
        features: Tensor = self.features(images)
        return features


def _register_mobilenet_v3(name: str, rows: Sequence[_Row], head_channels: int) -> None:
    @MODELS.register(name)
    def create_mobilenet_v3(
        *,
        attention: AttentionFactory | None = HardSqueezeExcitation,
        attention_stages: Sequence[int] | None = None,
        num_classes: int = 1000,
        in_channels: int = 3,
        stem: Stem = "imagenet",
        width_multiplier: float = 1.0,
        dropout: float = 0.2,
    ) -> MobileNetV3:
        """Create the small or the large network; see :class:`MobileNetV3`."""
        return MobileNetV3(
            rows,
            head_channels,
            attention=attention,
            attention_stages=attention_stages,
            num_classes=num_classes,
            in_channels=in_channels,
            stem=stem,
            width_multiplier=width_multiplier,
            dropout=dropout,
        )


_register_mobilenet_v3("mobilenet_v3_small", _SMALL, 1024)
_register_mobilenet_v3("mobilenet_v3_large", _LARGE, 1280)
