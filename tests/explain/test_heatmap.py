import pytest
import torch

from zoo.explain.heatmap import Heatmap


def test_mass_is_what_speaks_for_the_answer_and_sums_to_one():
    heatmap = Heatmap("x", "X", torch.tensor([[-3.0, 1.0], [0.0, 3.0]]), is_signed=True)
    assert heatmap.mass().tolist() == [[0.0, 0.25], [0.0, 0.75]]
    assert Heatmap("x", "X", torch.zeros(2, 5)).mass().unique().tolist() == pytest.approx([0.1])


def test_cells_are_means_and_never_more_than_the_pixels():
    values = torch.arange(32.0 * 8).view(32, 8)
    cells = Heatmap("x", "X", values).cells()
    assert cells.shape == (16, 8)
    assert float(cells[0, 0]) == pytest.approx(float(values[:2, 0].mean()))


def test_what_is_no_map_is_refused():
    with pytest.raises(ValueError, match=r"'x' must be a finite map \(height, width\), got \(3,\)"):
        Heatmap("x", "X", torch.zeros(3))
    with pytest.raises(ValueError, match="must be a finite map"):
        Heatmap("x", "X", torch.full((2, 2), float("nan")))
    with pytest.raises(ValueError, match="'x' has no sign, but its smallest value is -1"):
        Heatmap("x", "X", torch.tensor([[-1.0]]))
