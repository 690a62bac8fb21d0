"""Cells of coarse maps lie where the pixels are that they were computed from."""

import pytest
import torch
from torch import nn

import zoo
from zoo.explain.cells import Cells, follow_cells

STACKS = {
    "3x3 of stride 2": nn.Sequential(*[nn.Conv2d(1, 1, 3, stride=2, padding=1, bias=False) for _ in range(3)]),
    "7x7, pooling, 3x3": nn.Sequential(
        nn.Conv2d(1, 1, 7, stride=2, padding=3, bias=False),
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.Conv2d(1, 1, 3, stride=2, padding=1, bias=False),
    ),
    "patches": nn.Sequential(nn.Conv2d(1, 1, 8, stride=8, bias=False)),
    "without padding": nn.Sequential(nn.Conv2d(1, 1, 5, bias=False), nn.Conv2d(1, 1, 5, stride=3, bias=False)),
    "dilated": nn.Sequential(nn.Conv2d(1, 1, 3, dilation=3, padding=3, bias=False), nn.AvgPool2d(2)),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_centre_of_a_cell_is_the_centre_of_the_pixels_it_depends_on(name):
    model = STACKS[name]
    for module in model:
        if isinstance(module, nn.Conv2d):
            nn.init.ones_(module.weight)
    images = torch.zeros(1, 1, 48, 64, requires_grad=True)
    with follow_cells(model, (48, 64)) as tracker:
        output = model(images)
    cells = tracker.of(tuple(output.shape[2:]))
    row, column = output.shape[2] // 2, output.shape[3] // 2
    (gradient,) = torch.autograd.grad(output[0, 0, row, column], images)
    mass = gradient[0, 0] / gradient.sum()
    assert float((mass.sum(1) * torch.arange(48)).sum()) == pytest.approx(cells.rows.first + cells.rows.step * row)
    centre = cells.columns.first + cells.columns.step * column
    assert float((mass.sum(0) * torch.arange(64)).sum()) == pytest.approx(centre)


def test_a_cell_of_the_last_map_of_a_resnet_is_spread_around_its_pixels():
    model = zoo.create_model("resnet18", num_classes=2, width_multiplier=0.05).eval()
    with follow_cells(model, (224, 160)) as tracker, torch.no_grad():
        model(torch.zeros(1, 3, 224, 160))
    cells = tracker.of((7, 5))
    assert (cells.rows, cells.columns) == ((0, 32), (0, 32))
    grid = torch.zeros(7, 5)
    grid[2, 3] = 1
    assert torch.equal((cells.spread(grid, (224, 160)) == 1).nonzero(), torch.tensor([[64, 96]]))


def test_sizes_that_no_module_explains_lie_side_by_side():
    class Shrinks(nn.Module):
        def forward(self, images):
            return nn.functional.interpolate(images, scale_factor=0.25)

    class PadsByItself(nn.Conv2d):
        def forward(self, images):
            return super().forward(nn.functional.pad(images, (0, 1, 0, 1)))

    for model in (Shrinks(), PadsByItself(1, 1, 3, stride=2)):
        images = torch.zeros(1, 1, 8, 8)
        with follow_cells(model, (8, 8)) as tracker:
            size = tuple(model(images).shape[2:])
        assert tracker.of(size) == Cells.tile(size, (8, 8))


def test_spreading_interpolates_between_centres_and_stays_beyond_them():
    spread = Cells.tile((1, 2), (1, 8)).spread(torch.tensor([[0.0, 4.0]]), (1, 8))
    assert spread[0].tolist() == pytest.approx([0, 0, 0.5, 1.5, 2.5, 3.5, 4, 4])
