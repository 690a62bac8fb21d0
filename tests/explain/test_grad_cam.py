import pytest
import torch
from torch import nn

import zoo
from zoo.explain.grad_cam import grad_cam

IMAGES = torch.randn(1, 3, 12, 8, generator=torch.Generator().manual_seed(0))


class Small(nn.Module):
    def __init__(self, *, inplace=False):
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.act1 = nn.ReLU(inplace=inplace)
        self.conv2 = nn.Conv2d(4, 5, 3, padding=1)
        self.act2 = nn.ReLU(inplace=inplace)
        self.head = nn.Linear(5, 2)

    def forward(self, images):
        return self.head(self.act2(self.conv2(self.act1(self.conv1(images)))).mean((2, 3)))


def test_the_map_is_the_formula():
    model = Small()
    features = model.act2(model.conv2(model.act1(model.conv1(IMAGES)))).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model.head(features.mean((2, 3)))[0, 1], features)
    expected = (gradient.mean((2, 3), keepdim=True) * features).sum(1).clamp_min(0)[0]
    assert torch.allclose(grad_cam(model, IMAGES, 1).values, expected.detach(), atol=1e-6)


def test_operations_in_place_change_nothing():
    model, inplace = Small(), Small(inplace=True)
    assert torch.equal(grad_cam(model, IMAGES, 0).values, grad_cam(inplace, IMAGES, 0).values)
    for layer in ("conv1", "conv2", "act1"):
        expected = grad_cam(model, IMAGES, 0, layer=layer).values
        assert torch.equal(grad_cam(inplace, IMAGES, 0, layer=layer).values, expected)
        assert expected.max() > 0


def test_gradients_come_under_no_grad_and_in_inference_mode_and_stay_out_of_the_parameters():
    model = Small()
    expected = grad_cam(model, IMAGES, 1).values
    with torch.no_grad():
        assert torch.equal(grad_cam(model, IMAGES, 1).values, expected)
    with torch.inference_mode():
        assert torch.equal(grad_cam(model, IMAGES.clone(), 1).values, expected)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_explained_is_said():
    class WithoutGradient(Small):
        @torch.no_grad()
        def forward(self, images):
            return super().forward(images)

    with pytest.raises(ValueError, match=r"no gradient: its forward runs under torch\.no_grad"):
        grad_cam(WithoutGradient(), IMAGES, 0)
    with pytest.raises(ValueError, match="no module of the model returns a feature map with more than one place"):
        grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(288, 2)), IMAGES, 0)
    with pytest.raises(ValueError, match="layer 'conv3' is no module of the model"):
        grad_cam(Small(), IMAGES, 0, layer="conv3")
    with pytest.raises(ValueError, match="the module head returns a feature map"):
        grad_cam(Small(), IMAGES, 0, layer="head")
    with pytest.raises(ValueError, match=r"must be one normalised image \(1, channels, height, width\), got .* \(2, 3"):
        grad_cam(Small(), IMAGES.repeat(2, 1, 1, 1), 0)


def test_every_token_of_the_grid_has_a_gradient_although_only_the_class_token_is_read():
    torch.manual_seed(0)
    model = zoo.create_model("vit_tiny_patch4_32", num_classes=2, depth=1, embed_dim=32, num_heads=1).eval()
    nn.init.normal_(model.blocks[0].attention.query_key_value.weight)
    heatmap = grad_cam(model, torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)), 1)
    assert heatmap.values.max() > 0
