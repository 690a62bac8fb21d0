"""Labels: from names to numbers, and whether they are what a loss expects."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zoo.registry import suggest


def check_labels(labels: Tensor, class_names: Sequence[str], sample_name: Callable[[int], str], split: str) -> None:
    """Check that labels are whole numbers from 0 to the number of classes - 1.

    Args:
        labels: One per image.
        class_names: The classes.
        sample_name: Gives the name of the image at a position, for the message.
        split: Name of the split, for the message.

    Raises:
        ValueError: Wrong type, shape or value; the message names the first offender and the classes.

    >>> check_labels(torch.tensor([0, 1, 3]), ["cat", "dog"], "test/{}".format, "test")
    Traceback (most recent call last):
    ...
    ValueError: test image test/2 has label 3, labels must be 0..1 (0 cat, 1 dog); images per label: 0: 1, 1: 1, 3: 1
    """
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise ValueError(
            f"{split} labels must be int64 of shape (images,), got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    wrong = ((labels < 0) | (labels >= len(class_names))).nonzero()
    if len(wrong) == 0:
        return
    first = int(wrong[0])
    classes = ", ".join(f"{label} {name}" for label, name in list(enumerate(class_names))[:20])
    values, counts = labels.unique(return_counts=True)
    found = ", ".join(
        f"{value}: {count}" for value, count in list(zip(values.tolist(), counts.tolist(), strict=True))[:20]
    )
    raise ValueError(
        f"{split} image {sample_name(first)} has label {int(labels[first])}, labels must be "
        f"0..{len(class_names) - 1} ({classes}); images per label: {found}"
    )


def map_labels(own: Sequence[str], demanded: Sequence[str]) -> Tensor:
    """Return the label in ``demanded`` of each class in ``own``, matched by name.

    Args:
        own: Classes of the data, in its own order.
        demanded: Classes in the order that labels must follow; may hold classes that the data lacks.

    Raises:
        ValueError: A name occurs twice, or a class of the data is not demanded.

    >>> map_labels(["c", "b"], ["a", "b", "c"])
    tensor([2, 1])
    """
    for kind, names in (("the data", own), ("the demanded classes", demanded)):
        repeated = next((name for position, name in enumerate(names) if name in names[:position]), None)
        if repeated is not None:
            raise ValueError(f"class {repeated!r} occurs more than once in {kind}")
    position = {name: label for label, name in enumerate(demanded)}
    unknown = [name for name in own if name not in position]
    if unknown:
        raise ValueError(
            f"the data has class {unknown[0]!r} ({len(unknown)} such), which is not among the {len(demanded)} "
            f"demanded classes.{suggest(unknown[0], list(demanded))} Demanded: {', '.join(list(demanded)[:20])}"
        )
    return torch.tensor([position[name] for name in own], dtype=torch.int64)
