"""Hold weights against their card: the file, the network, its cost, what it computes, and how often it is right."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.complexity import count_macs
from zoo.evaluation.predictions import predict_dataset
from zoo.evaluation.report import compare_with_claim, describe_claim
from zoo.models.captioner import Captioner, with_fixed_words
from zoo.models.parameter_count import count_parameters
from zoo.pretrained import WeightCard, check_fingerprint, load_card, load_pretrained

if TYPE_CHECKING:
    from zoo.data.caption_module import CaptionDataModule
    from zoo.data.data_module import ImageDataModule, Split
    from zoo.preprocessing import Preprocessing


class Check(NamedTuple):
    """One thing a card says, and whether it is so; ``None`` where the card does not say it."""

    name: str
    passed: bool | None
    detail: str


def verify_weights(
    name: str,
    *,
    folder: Path | str | None = None,
    accuracy: bool = False,
    data_options: Mapping[str, Any] | None = None,
) -> list[Check]:
    """Check everything a card says of its weights.

    Args:
        name: As in :func:`zoo.load_pretrained`.
        folder: Where to look names up.
        accuracy: Measure the accuracy on the card's split of its data as well; takes a pass over all its images.
        data_options: Options of the data in place of the card's, such as ``root``.

    Returns:
        The checks in order; the list ends with the first that makes the others impossible.
    """
    try:
        card = load_card(name, folder=folder)
    except (ValueError, OSError) as error:
        return [Check("card", False, str(error))]
    checks = [Check("card", True, f"{card.model['name']}, {card.data['name']}, {card.licence}")]
    try:
        model, _ = load_pretrained(name, folder=folder)
    except (ValueError, OSError) as error:
        return [*checks, Check("tensors", False, str(error))]
    checks.append(Check("tensors", True, f"sha256 {card.tensors['sha256'][:16]}..., every name and shape"))
    checks.append(_check_count("parameters", count_parameters(model), card))
    checks.append(_check_count("macs", count_macs(with_fixed_words(model), card.input_size), card))
    try:
        check_fingerprint(model, card)
        checks.append(Check("fingerprint", True, f"{len(card.fingerprint['logits'])} logits of the fixed input"))
    except ValueError as error:
        checks.append(Check("fingerprint", False, str(error)))
    if accuracy:
        checks.append(_check_accuracy(model, card, dict(data_options or {})))
    return checks


def measure_accuracy(
    model: nn.Module, data: "ImageDataModule", preprocessing: "Preprocessing", split: "Split"
) -> dict[str, Any]:
    """Return all metrics of a model on a split of the data, the images prepared as the weights need it."""
    data.preprocessing = preprocessing
    data.setup()
    try:
        loader = data.create_loader(split)
        predictions = predict_dataset(model, loader, partial(data.prepare_batch, training=False))
    finally:
        data.teardown()
    return compute_metrics(predictions, data.class_names)


def measure_captions(
    model: Captioner, data: "CaptionDataModule", preprocessing: "Preprocessing", split: "Split"
) -> dict[str, Any]:
    """Return all metrics of a captioner on a split of the data, the images prepared as the weights need it."""
    from zoo.evaluation.captions import compute_caption_metrics, predict_captions

    data.preprocessing = preprocessing
    data.setup()
    try:
        return compute_caption_metrics(predict_captions(model, data, split), data.references(split))
    finally:
        data.teardown()


def _check_count(name: str, counted: int, card: WeightCard) -> Check:
    stated = card.cost.get(name)
    if stated is None:
        return Check(name, None, f"{counted:,}; the card does not say")
    return Check(name, counted == stated, f"{counted:,}" if counted == stated else f"{counted:,}, card: {stated:,}")


def _check_accuracy(model: nn.Module, card: WeightCard, data_options: dict[str, Any]) -> Check:
    from zoo.data import create_data
    from zoo.preprocessing import Preprocessing

    split = card.data["split"]
    options = {**card.data.get("options", {}), **data_options}
    try:
        data = create_data(card.data["name"], class_names=card.class_names, **options)
        preprocessing = Preprocessing.from_dict(card.preprocessing)
        if isinstance(model, Captioner):
            figure, words = "exact_match", "exact match"
            metrics = measure_captions(model, data, preprocessing, split)
        else:
            figure, words = "top1", "top-1"
            metrics = measure_accuracy(model, data, preprocessing, split)
    except (ValueError, OSError) as error:
        return Check("accuracy", False, str(error))
    claim = compare_with_claim(card, metrics[figure], card.data["name"], split, options, figure=figure)
    return Check("accuracy", claim.get("agrees"), describe_claim(claim, words))
