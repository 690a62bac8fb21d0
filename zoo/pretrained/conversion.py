"""Give weights of others a card of ours: a safetensors file under our names, and what is known about it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoo.models.backbone import Backbone
from zoo.pretrained.card import WeightCard
from zoo.pretrained.creation import create_pretrained
from zoo.pretrained.report import LoadReport
from zoo.pretrained.saving import save_weights

UNKNOWN_HARDWARE = {"processor": None, "num_cores": None, "accelerator": None, "system": None}


def convert_weights(
    source: Path | str,
    card_path: Path | str,
    *,
    model: Mapping[str, Any],
    preprocessing: Any,
    data: Mapping[str, Any],
    licence: str,
    made_by: str,
    measure: Callable[[Backbone], tuple[Mapping[str, Any], Mapping[str, Any]]],
    command: str | None = None,
) -> tuple[WeightCard, LoadReport]:
    """Write the tensors of any source as safetensors under our names, and a card beside them.

    Args:
        source: As in :func:`zoo.create_model`'s ``pretrained``.
        card_path: Where the card goes; ends in ``.yaml``, and must not exist.
        model: ``name`` and further arguments of :func:`zoo.create_model`. Nothing may be adapted but names: a card
            is about the weights as they are.
        preprocessing: A :class:`zoo.preprocessing.Preprocessing` or its dict.
        data: ``name``, ``split``, ``class_names`` and ``options``.
        licence: SPDX name.
        made_by: Who or what made the weights.
        measure: Returns the metrics (empty where they are not measured) and the cost of the model.
        command: The command line that converts.

    Returns:
        The card, and what became of every tensor.

    Raises:
        ValueError: The source does not fit the model, or not without a fresh part; or a section is wrong.
        OSError: The files cannot be fetched or written.
    """
    if Path(card_path).exists():
        raise ValueError(f"{card_path} exists; weights with a card are not written over")
    arguments = dict(model)
    built, report = create_pretrained(arguments.pop("name"), source, **arguments)
    if not report.is_plain:
        raise ValueError(
            f"{source} does not hold all of the model: {report.summary()}; a card is about weights as they are"
        )
    metrics, cost = measure(built.eval())
    card = save_weights(
        built,
        card_path,
        preprocessing=preprocessing,
        data=data,
        metrics={"selected_epoch": {}, "last_epoch": metrics},
        stored="last_epoch",
        cost=cost,
        hardware=UNKNOWN_HARDWARE,
        licence=licence,
        source=f"{made_by}; converted from {Path(source).name}, sha256 {report.sha256}",
        command=command,
    )
    return card, report
