"""Residual networks: the CIFAR family of depth 6n + 2, and ResNet-18, -34, -50 and -101."""

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from zoo.layers.attention_slots import AttentionFactory, AttentionSlots
from zoo.layers.conv_norm_act import convolution
from zoo.models.backbone import Backbone, Stem, check_backbone_arguments, check_choice, global_mean, linear
from zoo.registry import MODELS

Shortcut = Literal["pad", "conv"]


class PaddedShortcut(nn.Module):
    """The parameter-free shortcut ("option A"): every ``stride``-th pixel, and new channels of zeros on both sides.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output, at least ``in_channels``; the zeros are split evenly before and after.
        stride: Step between the kept pixels.

    >>> import torch
    >>> PaddedShortcut(2, 4, stride=2)(torch.ones(1, 2, 3, 3))[0, :, 0, 0]
    tensor([0., 1., 1., 0.])
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (out_channels - in_channels) // 2
        self.after = out_channels - in_channels - self.before

    def forward(self, features: Tensor) -> Tensor:
        """Subsample and pad ``(batch, in_channels, height, width)``."""
        return functional.pad(features[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a skip: ``relu(attention(bn2(conv2(relu(bn1(conv1(x)))))) + shortcut(x))``.

    The gate has the width of the block's output.
    """

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        planes: int,
        *,
        stride: int,
        shortcut: nn.Module | None,
        attention: AttentionFactory | None,
    ) -> None:
        super().__init__()
        self.conv1 = convolution(in_channels, planes, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = convolution(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.attention = None if attention is None else attention(planes)
        self.downsample = shortcut
        self.relu2 = nn.ReLU()

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, planes, height / stride, width / stride)``."""
        branch = self.relu1(self.bn1(self.conv1(features)))
        branch = self.bn2(self.conv2(branch))
        if self.attention is not None:
            branch = self.attention(branch)
        skip = features if self.downsample is None else self.downsample(features)
        return self.relu2(branch + skip)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a skip, four times as wide outside as inside; the stride is the 3x3's.

    The gate acts on the branch after its last norm, before the addition, and has the outer width ``4 * planes``.
    """

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        planes: int,
        *,
        stride: int,
        shortcut: nn.Module | None,
        attention: AttentionFactory | None,
    ) -> None:
        super().__init__()
        out_channels = planes * self.expansion
        self.conv1 = convolution(in_channels, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU()
        self.conv2 = convolution(planes, planes, 3, stride=stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu2 = nn.ReLU()
        self.conv3 = convolution(planes, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.attention = None if attention is None else attention(out_channels)
        self.downsample = shortcut
        self.relu3 = nn.ReLU()

    def forward(self, features: Tensor) -> Tensor:
        """Map ``(batch, in_channels, height, width)`` to ``(batch, 4 * planes, height / stride, width / stride)``."""
        branch = self.relu1(self.bn1(self.conv1(features)))
        branch = self.relu2(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        if self.attention is not None:
            branch = self.attention(branch)
        skip = features if self.downsample is None else self.downsample(features)
        return self.relu3(branch + skip)


class ResNet(Backbone):
    """A residual network with attention last in the residual branches; parts are named as in torchvision.

    Stage ``i`` (``layer1`` on) has ``stage_depths[i - 1]`` blocks of ``base_width * 2^(i - 1)`` planes; every stage
    but the first halves the map. The ``imagenet`` stem is a 7x7 convolution of stride 2 and a 3x3 max pooling of
    stride 2, the ``cifar`` stem a 3x3 convolution of stride 1. Convolutions start from He's normal distribution
    (fan-out), norms from 1 and 0, the classifier from ``N(0, 0.01^2)`` and 0; gates start as their mechanism says.

    Args:
        block: The kind of block.
        stage_depths: Blocks in each stage.
        base_width: Planes of the first stage at ``width_multiplier`` 1.
        attention: Builds the gate of a block from its channels; ``None`` for none.
        attention_stages: Stages, counted from 1, that get gates; ``None`` for all.
        num_classes: Number of logits, at least 1.
        in_channels: Channels of the image, at least 1.
        stem: ``"cifar"`` or ``"imagenet"``.
        shortcut: Where a block changes the shape, ``"conv"`` takes a 1x1 convolution and a norm ("option B"),
            ``"pad"`` subsampling and zeros, without parameters ("option A").
        width_multiplier: Scales the width of every stage; the first is rounded to a whole number, at least 1.

    Shape:
        ``(batch, in_channels, height, width)`` to ``(batch, num_classes)``.

    Raises:
        ValueError: An argument is outside its range.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, https://arxiv.org/abs/1512.03385
    """

    classifier_names = ("fc",)

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        stage_depths: Sequence[int],
        base_width: int,
        *,
        attention: AttentionFactory | None,
        attention_stages: Sequence[int] | None,
        num_classes: int,
        in_channels: int,
        stem: Stem,
        shortcut: Shortcut,
        width_multiplier: float,
    ) -> None:
        super().__init__()
        check_backbone_arguments(num_classes, in_channels, stem, width_multiplier)
        check_choice("shortcut", shortcut, get_args(Shortcut))
        slots = AttentionSlots(attention, attention_stages)
        width = max(1, round(base_width * width_multiplier))
        large = stem == "imagenet"
        self.conv1 = convolution(in_channels, width, 7 if large else 3, stride=2 if large else 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        channels = width
        self.stages: list[str] = []
        self._stage_channels: list[int] = []
        for stage, depth in enumerate(stage_depths, start=1):
            planes = width * 2 ** (stage - 1)
            blocks: list[nn.Module] = []
            for index in range(depth):
                stride = 2 if stage > 1 and index == 0 else 1
                slot = slots.slot(f"layer{stage}.{index}.attention", stage)
                skip = _shortcut(shortcut, channels, planes * block.expansion, stride)
                blocks.append(block(channels, planes, stride=stride, shortcut=skip, attention=slot))
                channels = planes * block.expansion
            self.stages.append(f"layer{stage}")
            self._stage_channels.append(channels)
            self.add_module(self.stages[-1], nn.Sequential(*blocks))
        self.feature_channels = channels
        self.fc = linear(channels, num_classes)
        self._attention_places = slots.places()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ``(batch, in_channels, height, width)`` images."""
        return self.fc(global_mean(self.feature_map(images)))

    @override
    def end_at_stage(self, stage: int) -> None:
        if not 1 <= stage <= len(self.stages):
            raise ValueError(f"stage ({stage}) must be from 1 to {len(self.stages)}")
        for name in self.stages[stage:]:
            delattr(self, name)
        del self.stages[stage:]
        self.feature_channels = self._stage_channels[stage - 1]
        self._attention_places = tuple(place for place in self._attention_places if place.stage <= stage)

    @override
    def feature_map(self, images: Tensor) -> Tensor:
        features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in self.stages:
            features = getattr(self, stage)(features)
        return features


def _shortcut(kind: Shortcut, in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
    if stride == 1 and in_channels == out_channels:
        return None
    if kind == "pad":
        return PaddedShortcut(in_channels, out_channels, stride=stride)
    return nn.Sequential(convolution(in_channels, out_channels, 1, stride=stride), nn.BatchNorm2d(out_channels))


def _register_cifar_resnet(depth: int) -> None:
    """Register the CIFAR network of ``depth`` layers: three stages of ``(depth - 2) / 6`` blocks."""

    @MODELS.register(f"resnet{depth}")
    def create_cifar_resnet(
        *,
        attention: AttentionFactory | None = None,
        attention_stages: Sequence[int] | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        stem: Stem = "cifar",
        shortcut: Shortcut = "pad",
        width_multiplier: float = 1.0,
    ) -> ResNet:
        """Create a CIFAR network of basic blocks; see :class:`ResNet`."""
        return ResNet(
            BasicBlock,
            [(depth - 2) // 6] * 3,
            16,
            attention=attention,
            attention_stages=attention_stages,
            num_classes=num_classes,
            in_channels=in_channels,
            stem=stem,
            shortcut=shortcut,
            width_multiplier=width_multiplier,
        )


def _register_imagenet_resnet(
    name: str, block: type[BasicBlock] | type[Bottleneck], stage_depths: Sequence[int]
) -> None:
    """Register a network of the ImageNet family: four stages from 64 planes on."""

    @MODELS.register(name)
    def create_imagenet_resnet(
        *,
        attention: AttentionFactory | None = None,
        attention_stages: Sequence[int] | None = None,
        num_classes: int = 1000,
        in_channels: int = 3,
        stem: Stem = "imagenet",
        shortcut: Shortcut = "conv",
        width_multiplier: float = 1.0,
    ) -> ResNet:
        """Create an ImageNet network; see :class:`ResNet`."""
        return ResNet(
            block,
            stage_depths,
            64,
            attention=attention,
            attention_stages=attention_stages,
            num_classes=num_classes,
            in_channels=in_channels,
            stem=stem,
            shortcut=shortcut,
            width_multiplier=width_multiplier,
        )


for _depth in (20, 32, 44, 56, 110):
    _register_cifar_resnet(_depth)
_register_imagenet_resnet("resnet18", BasicBlock, (2, 2, 2, 2))
_register_imagenet_resnet("resnet34", BasicBlock, (3, 4, 6, 3))
_register_imagenet_resnet("resnet50", Bottleneck, (3, 4, 6, 3))
_register_imagenet_resnet("resnet101", Bottleneck, (3, 4, 23, 3))
