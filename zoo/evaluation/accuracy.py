"""From predictions to the figures of a report: accuracies, likelihood, calibration."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torchmetrics.functional.classification import multiclass_confusion_matrix

from zoo.evaluation.calibration import expected_calibration_error
from zoo.evaluation.predictions import Predictions


def compute_metrics(predictions: Predictions, class_names: Sequence[str]) -> dict[str, Any]:
    """Compute every figure a report shows, as plain numbers; accuracies are fractions.

    The answer of a model is the class with the highest logit; between equal logits the lower class index wins
    (so all-zero logits mean class 0, and classes 0 to 4 as the top five).

    Args:
        predictions: Finite logits and their targets.
        class_names: One distinct name per column of the logits.

    Returns:
        ``num_images``; ``top1`` (micro average: each image counts the same); ``top5`` only when there are more
        than five classes; ``macro_accuracy`` (each class that occurs counts the same); ``per_class`` (name to
        accuracy, ``None`` for a class without images) and ``num_per_class``; ``confusion`` (rows are true
        classes, columns answers); ``nll`` (mean negative log-likelihood in nats); ``ece``.

    Raises:
        ValueError: A logit is NaN or infinite, a target is no class, or the names do not fit the logits.

    >>> answers = Predictions(torch.eye(3)[[0, 0, 0, 0, 1]], torch.tensor([0, 0, 0, 1, 1]), torch.arange(5))
    >>> metrics = compute_metrics(answers, ["cat", "dog", "owl"])
    >>> metrics["top1"], metrics["macro_accuracy"], metrics["per_class"]
    (0.8, 0.75, {'cat': 1.0, 'dog': 0.5, 'owl': None})
    """
    logits, targets, _ = predictions
    _check(predictions, class_names)
    num_classes = logits.shape[1]
    answers = logits.argmax(dim=1)
    # torchmetrics knows no problem with a single class; the second, empty row and column are cut off again.
    confusion = multiclass_confusion_matrix(answers, targets, num_classes=max(num_classes, 2))
    confusion = confusion[:num_classes, :num_classes]
    counts, hits = confusion.sum(dim=1).tolist(), confusion.diagonal().tolist()
    per_class = {
        name: hit / count if count else None for name, hit, count in zip(class_names, hits, counts, strict=True)
    }
    occurring = [accuracy for accuracy in per_class.values() if accuracy is not None]
    metrics: dict[str, Any] = {"num_images": len(targets), "top1": sum(hits) / len(targets)}
    if num_classes > 5:
        metrics["top5"] = top_k_accuracy(logits, targets, k=5)
    metrics["macro_accuracy"] = sum(occurring) / len(occurring)
    metrics["nll"] = float(cross_entropy(logits.double(), targets))
    metrics["ece"] = expected_calibration_error(logits, targets)
    metrics["per_class"] = per_class
    metrics["num_per_class"] = dict(zip(class_names, counts, strict=True))
    metrics["confusion"] = confusion.tolist()
    return metrics


def top_k_accuracy(logits: torch.Tensor, targets: torch.Tensor, *, k: int) -> float:
    """Return the share of images whose true class is among the ``k`` highest logits; ties go to the lower index.

    Raises:
        ValueError: ``k`` is not below the number of classes, where every answer would count as right.

    >>> top_k_accuracy(torch.zeros(3, 4), torch.tensor([0, 1, 3]), k=2)
    0.6666666666666666
    """
    num_classes = logits.shape[1]
    if not 1 <= k < num_classes:
        raise ValueError(f"k ({k}) must be at least 1 and below the number of classes ({num_classes})")
    target_logits = logits.gather(1, targets[:, None])
    classes = torch.arange(num_classes, device=logits.device)
    ahead = (logits > target_logits) | ((logits == target_logits) & (classes < targets[:, None]))
    return int((ahead.sum(dim=1) < k).sum()) / len(targets)


def scalar_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep the single numbers of :func:`compute_metrics`: what fits a line of a table or a weight card."""
    return {name: value for name, value in metrics.items() if isinstance(value, int | float)}


def _check(predictions: Predictions, class_names: Sequence[str]) -> None:
    logits, targets, indices = predictions
    if logits.ndim != 2 or not len(logits):
        raise ValueError(f"logits must be (num_images, num_classes) with at least one image, not {tuple(logits.shape)}")
    num_classes = logits.shape[1]
    if len(class_names) != num_classes:
        raise ValueError(f"the logits have {num_classes} classes, but {len(class_names)} class names are given")
    repeated = [name for name, count in Counter(class_names).items() if count > 1]
    if repeated:
        raise ValueError(f"class names must differ; repeated: {', '.join(repeated)}")
    broken = ~logits.isfinite().all(dim=1)
    if broken.any():
        raise ValueError(
            f"the logits of {int(broken.sum())} of {len(logits)} images are NaN or infinite (first: image "
            f"{int(indices[broken][0])}): the model is broken, so there is no accuracy to report"
        )
    outside = (targets < 0) | (targets >= num_classes)
    if outside.any():
        raise ValueError(
            f"targets must lie in 0..{num_classes - 1}; image {int(indices[outside][0])} has {int(targets[outside][0])}"
        )
