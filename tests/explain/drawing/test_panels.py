import torch
from matplotlib.figure import Figure

from zoo.explain.cells import Cells
from zoo.explain.drawing.panels import _draw_bars, choose_evenly
from zoo.explain.gates import Gate


def test_bars_start_at_one_and_name_the_channels_unlike_the_others():
    axes = Figure().subplots()
    gate = Gate("layer1.0.attention", 1, "channel", torch.tensor([0.5, 1.5, 0.5]), Cells.tile((1, 1), (1, 1)))
    _draw_bars(axes, gate)
    ends = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches]
    assert ends == [(1.0, 0.5), (1.0, 1.5), (1.0, 0.5)]
    assert axes.texts[0].get_text() == "1"
    assert axes.get_title() == "layer1.0: mean 0.83, from 1 by 0.50"


def test_of_many_an_even_selection_is_shown():
    assert choose_evenly(list(range(23)), 6) == [0, 4, 9, 13, 18, 22]
    assert choose_evenly([1, 2], 6) == [1, 2]
