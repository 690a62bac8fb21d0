"""The model's answers for every image of a data set, each image once however many processes share the work."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.distributed as dist
from torch import nn

Precision = Literal["fp32", "bf16", "fp16"]
AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Predictions(NamedTuple):
    """Logits and labels of a data set, one row per image, sorted by the image's index.

    Shape:
        - logits: float32 ``(num_images, num_classes)``
        - targets, indices: int64 ``(num_images,)``
    """

    logits: torch.Tensor
    targets: torch.Tensor
    indices: torch.Tensor


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device called ``name``; ``auto`` is CUDA where there is one.

    Raises:
        ValueError: ``cuda`` is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' is asked for, but torch finds no CUDA device here")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and give each its own former mode back (frozen parts stay in eval)."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def predict_dataset(
    model: nn.Module,
    loader: Iterable[Any],
    prepare: Callable[[Any], Any],
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "fp32",
) -> Predictions:
    """Run the model over a loader in eval mode without gradients and return what it said about every image.

    Args:
        model: Maps images to logits ``(batch, num_classes)``; must already be on ``device``.
        loader: Gives named tuples with the tensors ``images``, ``labels`` and ``indices``.
        prepare: Turns such a batch, already on ``device``, into one the model takes, normalised and not
            augmented: ``functools.partial(data.prepare_batch, training=False)`` for a data module of the zoo.
        device: Where the forward pass runs; the result lies on the CPU.
        precision: ``"fp32"``, or the dtype autocast computes in.

    Returns:
        The predictions, gathered over all processes when torch.distributed is initialised.

    Raises:
        ValueError: The loader gives no image, or the precision is unknown.
    """
    if precision not in get_args(Precision):
        raise ValueError(f"precision ({precision!r}) must be one of {', '.join(get_args(Precision))}")
    device = torch.device(device)
    rows: list[Predictions] = []
    with evaluation_mode(model), torch.inference_mode():
        for batch in loader:
            moved = batch._replace(**{name: part.to(device) for name, part in batch._asdict().items()})
            images, labels, indices = prepare(moved)
            autocast = torch.autocast(device.type, AUTOCAST_DTYPES[precision]) if precision != "fp32" else nullcontext()
            with autocast:
                logits = model(images)
            rows.append(Predictions(logits.float().cpu(), labels.long().cpu(), indices.long().cpu()))
    empty = Predictions(torch.zeros(0, 0), torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    local = Predictions(*(torch.cat(parts) for parts in zip(*rows, strict=True))) if rows else empty
    gathered = gather_predictions(local)
    if not len(gathered.indices):
        raise ValueError("the loader gives no image: there is nothing to evaluate")
    return gathered


def gather_predictions(local: Predictions) -> Predictions:
    """Join the rows of all processes, drop repeats of an index (a padded sampler's), sort by index.

    Without torch.distributed only the last two happen. Every process gets the whole.
    """
    logits, targets, indices = (gather_rows(part) for part in local)
    order = torch.argsort(indices, stable=True)
    sorted_indices = indices[order]
    is_first = torch.ones_like(sorted_indices, dtype=torch.bool)
    is_first[1:] = sorted_indices[1:] != sorted_indices[:-1]
    keep = order[is_first]
    return Predictions(logits[keep], targets[keep], indices[keep])


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """Concatenate the CPU tensors of all processes along the first axis; their lengths may differ, even be 0."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return rows
    shapes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, tuple(rows.shape))
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else rows.device
    padded = torch.zeros([max(sizes) for sizes in zip(*shapes, strict=True)], dtype=rows.dtype, device=device)
    padded[tuple(slice(size) for size in rows.shape)] = rows.to(device)
    parts = [torch.empty_like(padded) for _ in shapes]
    dist.all_gather(parts, padded)
    return torch.cat([part[: shape[0]] for part, shape in zip(parts, shapes, strict=True)]).to(rows.device)
