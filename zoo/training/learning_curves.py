"""The picture of a run: loss and accuracy over its epochs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zoo.serialization import write_atomically


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def plot_learning_curves(
    rows: Sequence[Mapping[str, Any]],
    path: Path | str,
    *,
    title: str,
    score: tuple[str, str] = ("top1", "top-1 accuracy"),
) -> None:
    """Draw training and validation loss and score per epoch into a PNG.

    Args:
        rows: One mapping per epoch: ``epoch`` and any of ``train_loss``, ``val_loss``, ``train_SCORE``, ``val_SCORE``.
        path: The PNG file.
        title: Stands above the picture.
        score: The score by name, a fraction, and in words.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    figure.suptitle(title)
    panels = {"loss": "loss (nats)", score[0]: f"{score[1]} (%)"}
    for axes, (quantity, label) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for split, name, colour in (("train", "training", "tab:gray"), ("val", "validation", "tab:blue")):
            key = f"{split}_{quantity}"
            points = [(row["epoch"], row[key]) for row in rows if key in row]
            if points:
                epochs, values = zip(*points, strict=True)
                scale = 1 if quantity == "loss" else 100
                axes.plot(epochs, [scale * value for value in values], ".-", color=colour, label=name)
        axes.set(xlabel="epoch", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if axes.has_data():
            axes.legend()
    write_atomically(path, FigureCanvasAgg(figure).print_png)
