"""Where the papers put a gate, one rule per family of networks: the table that ``where="branches"`` reads.

A rule knows a block by the full name of its class, so that neither timm nor torchvision is imported here, and names
the child of the block whose output (or input) is gated. The networks of the zoo need no rule: they list their places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

Side = Literal["output", "input"]


@dataclass(frozen=True)
class Family:
    """The place of a gate in one kind of block.

    Args:
        name: The networks, as people call them.
        blocks: Full names of the classes of the block; subclasses count.
        child: Path of the child next to the gate, within the block; or a function from the block to it.
        side: Whether the gate follows the child or precedes it.
        place: The place in words.
        stage: Regular expression with one group, the number of the stage in a module's name, where the name tells
            it better than the resolution: dilated networks keep the resolution from one stage to the next.
    """

    name: str
    blocks: tuple[str, ...]
    child: str | Callable[[nn.Module], str]
    place: str
    side: Side = "output"
    stage: str | None = None

    def child_of(self, block: nn.Module) -> str:
        """Return the path of the child next to the gate within ``block``."""
        return self.child if isinstance(self.child, str) else self.child(block)


def _before_last(sequence: str, count: int) -> Callable[[nn.Module], str]:
    """Name the step of a sequence that ``count`` steps follow, or its first where there are fewer."""

    def child(block: nn.Module) -> str:
        steps = [name for name, _ in block.get_submodule(sequence).named_children()]
        return f"{sequence}.{steps[max(0, len(steps) - 1 - count)]}"

    return child


def _timm_separable_child(block: nn.Module) -> str:
    """MobileNetV1 has an activation after the pointwise step and its gate there; other networks gate the depthwise."""
    return "bn2" if getattr(block, "has_pw_act", False) else "se"


_RESNET_STAGE = r"(?:^|\.)layer(\d+)\."
_DEPTHWISE = "after the depthwise convolution, its norm and activation, on the expanded width"

FAMILIES: tuple[Family, ...] = (
    Family(
        "ResNet, ResNeXt, Wide ResNet (basic blocks)",
        ("torchvision.models.resnet.BasicBlock", "timm.models.resnet.BasicBlock"),
        child="bn2",
        place="last in the residual branch, before the addition",
        stage=_RESNET_STAGE,
    ),
    Family(
        "ResNet, ResNeXt, Wide ResNet (bottlenecks)",
        ("torchvision.models.resnet.Bottleneck", "timm.models.resnet.Bottleneck"),
        child="bn3",
        place="last in the residual branch, before the addition, on the outer width",
        stage=_RESNET_STAGE,
    ),
    Family(
        "RegNet of torchvision",
        ("torchvision.models.regnet.BottleneckTransform",),
        child="b",
        place="after the 3x3 group convolution, its norm and activation, where RegNetY has its own gate",
    ),
    Family(
        "RegNet of timm",
        ("timm.models.regnet.Bottleneck",),
        child="conv2",
        place="after the 3x3 group convolution, its norm and activation, where RegNetY has its own gate",
    ),
    Family(
        "MobileNetV1 of timm, and first blocks of its later MobileNets and EfficientNets",
        ("timm.models._efficientnet_blocks.DepthwiseSeparableConv",),
        child=_timm_separable_child,
        place="after the pointwise step in MobileNetV1, after the depthwise step elsewhere",
    ),
    Family(
        "MobileNetV2 of torchvision",
        ("torchvision.models.mobilenetv2.InvertedResidual",),
        child=_before_last("conv", 2),
        place=_DEPTHWISE,
    ),
    Family(
        "MobileNetV3 of torchvision",
        ("torchvision.models.mobilenetv3.InvertedResidual",),
        child=_before_last("block", 1),
        place=_DEPTHWISE,
    ),
    Family(
        "EfficientNet, EfficientNetV2 of torchvision",
        ("torchvision.models.efficientnet.MBConv", "torchvision.models.efficientnet.FusedMBConv"),
        child=_before_last("block", 1),
        place="after the depthwise (fused: the expanding) convolution, its norm and activation",
    ),
    Family(
        "MobileNetV2, V3, V4, EfficientNet, EfficientNetV2 of timm",
        (
            "timm.models._efficientnet_blocks.InvertedResidual",
            "timm.models._efficientnet_blocks.EdgeResidual",
            "timm.models._efficientnet_blocks.UniversalInvertedResidual",
        ),
        child="se",
        place="before the projection, where the block has the slot of its own gate",
    ),
    Family(
        "ConvNeXt of torchvision",
        ("torchvision.models.convnext.CNBlock",),
        child="stochastic_depth",
        side="input",
        place="last in the residual branch, after the layer scale",
    ),
    Family(
        "ConvNeXt of timm",
        ("timm.models.convnext.ConvNeXtBlock",),
        child="drop_path",
        side="input",
        place="last in the residual branch, after the layer scale",
    ),
    Family(
        "DenseNet",
        ("torchvision.models.densenet._DenseLayer", "timm.models.densenet.DenseLayer"),
        child="conv2",
        place="on the new maps of each layer, before they are concatenated; no paper gates DenseNet in its branches",
    ),
)


def family_of(module: nn.Module) -> Family | None:
    """Return the family whose block this module is, or ``None``."""
    classes = {f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__}
    return next((family for family in FAMILIES if classes.intersection(family.blocks)), None)
