"""Weights of a study for others: of each cell one seed, chosen on held-out images."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from zoo.comparison.runs import Cell, RunPlan, file_name, placeless
from zoo.comparison.study import BASELINE
from zoo.pretrained import read_card
from zoo.serialization import write_atomically
from zoo.training.report import without_root


def publish_weights(plans: Sequence[RunPlan], folder: Path | str) -> list[Path]:
    """Copy the weights and card of the best seed of every cell that has a finished run.

    The best is the one with the highest accuracy on the held-out images, the lowest of equal seeds; the test set has no
    say in it. A card that stands there already under the same name is replaced.

    Returns:
        The cards.

    Raises:
        ValueError: A card is damaged.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    cells: dict[Cell, list[RunPlan]] = {}
    for plan in plans:
        if plan.cell is not None and plan.run.is_finished:
            cells.setdefault(plan.cell, []).append(plan)
    return [_copy(best_seed(runs), folder / f"{weights_name(cell)}.yaml") for cell, runs in cells.items()]


def best_seed(runs: Sequence[RunPlan]) -> RunPlan:
    """Return the run with the highest validation accuracy at its selected epoch, the lowest of equal seeds."""
    return min(runs, key=lambda plan: (-_validation_top1(plan), plan.config.seed))


def weights_name(cell: Cell) -> str:
    """Name weights as ``train.py`` does, with the options that the cell varies.

    >>> weights_name(Cell("resnet20", "none", "cifar10")), weights_name(Cell("resnet20", "se(bias=False)", "cifar10"))
    ('resnet20.cifar10', 'resnet20_se-bias-False.cifar10')
    """
    attention = "" if cell.attention == BASELINE else f"_{file_name(cell.attention)}"
    return f"{file_name(cell.model)}{attention}.{file_name(cell.data)}"


def _validation_top1(plan: RunPlan) -> float:
    result = json.loads(plan.run.result.read_text(encoding="utf-8"))
    return float(result["validation"][str(result["selected_epoch"]["epoch"])])


def _copy(plan: RunPlan, path: Path) -> Path:
    card = read_card(plan.run.card)
    tensors = plan.run.card.with_name(card.tensors["file"]).read_bytes()
    assert card.training is not None
    published = dataclasses.replace(
        card,
        tensors={**card.tensors, "file": f"{path.stem}.safetensors"},
        data={**card.data, "options": without_root(card.data["options"])},
        training=placeless(card.training),
        command=plan.placeless_command(card.command),
        path=path,
    )
    write_atomically(path.with_name(published.tensors["file"]), tensors)
    write_atomically(path, published.to_yaml())
    return path
