"""Small networks of other people's families, with weights and statistics that all matter, as after training."""

from collections.abc import Callable

import pytest
import torch
from timm.models.resnet import BasicBlock, ResNet
from torch import nn
from torchvision.models.convnext import CNBlock, CNBlockConfig, ConvNeXt
from torchvision.models.mobilenetv2 import InvertedResidual, MobileNetV2


def as_trained(model: nn.Module) -> nn.Module:
    """Fill norms, scales and statistics with numbers near 1; what was initialised to zero would hide a gate."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            if value.is_floating_point() and value.squeeze().ndim <= 1:
                value.copy_(torch.rand(value.shape, generator=generator) * 0.5 + 0.75)
    return model.eval()


def small_resnet() -> nn.Module:
    return ResNet(BasicBlock, [1, 1, 1, 1], channels=(8, 16, 24, 32), stem_width=8, num_classes=5)


def small_mobilenet() -> nn.Module:
    return MobileNetV2(num_classes=5, width_mult=0.25, inverted_residual_setting=[[1, 8, 1, 1], [2, 8, 2, 2]])


def small_convnext() -> nn.Module:
    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], stochastic_depth_prob=0.1, num_classes=5)


class OneBlockOfEachWay(nn.Module):
    """A ConvNeXt block, an inverted residual and a basic block in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.convnext = CNBlock(8, layer_scale=1.0, stochastic_depth_prob=0.1)
        self.mobilenet = InvertedResidual(8, 8, stride=1, expand_ratio=2)
        self.resnet = BasicBlock(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.fc(self.resnet(self.mobilenet(self.convnext(self.stem(images)))).mean((2, 3)))


SMALL_NETS = {
    "output": small_resnet,
    "step": small_mobilenet,
    "input": small_convnext,
}
"""One network for each way in which a gate can hang in somebody else's."""


@pytest.fixture(params=SMALL_NETS)
def net(request: pytest.FixtureRequest) -> nn.Module:
    """A small network, one for each way."""
    torch.manual_seed(0)
    return as_trained(SMALL_NETS[request.param]())


@pytest.fixture
def mixed() -> nn.Module:
    """A network with one place for each way."""
    torch.manual_seed(0)
    return as_trained(OneBlockOfEachWay())


@pytest.fixture
def resnet() -> nn.Module:
    """A small ResNet."""
    torch.manual_seed(0)
    return as_trained(small_resnet())


@pytest.fixture
def images() -> torch.Tensor:
    """Two images."""
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def trained() -> Callable[[nn.Module], nn.Module]:
    """Return the function that makes a network look trained."""
    return as_trained
