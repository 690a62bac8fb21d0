"""Running a network for one answer, with gradients even where the caller has switched them off."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from zoo.evaluation.predictions import evaluation_mode


@contextmanager
def with_gradients(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode and record gradients, inside ``torch.no_grad`` and ``inference_mode`` too.

    The parameters collect no gradients: what asks for some uses ``torch.autograd.grad``.
    """
    with evaluation_mode(model), torch.inference_mode(False), torch.enable_grad():
        yield


@torch.no_grad()
def predict(model: nn.Module, images: Tensor, *, batch_size: int = 32) -> Tensor:
    """Return float32 logits on the CPU, in eval mode, (images, num_classes).

    Raises:
        ValueError: The model does not return one row of finite logits per image.
    """
    with evaluation_mode(model):
        logits = torch.cat([model(part) for part in images.split(batch_size)]).float().cpu()
    if logits.dim() != 2:
        raise ValueError(f"the model must return logits (images, classes), got {tuple(logits.shape)}")
    if not logits.isfinite().all():
        raise ValueError("the logits are NaN or infinite: the model is broken or the image is out of range")
    return logits


def gradient_of_logit(
    model: nn.Module, images: Tensor, classes: int | Tensor, intermediate: Callable[[], Tensor] | None = None
) -> Tensor:
    """Return the gradient of the logit of a class, or of each image's own one, summed over the images.

    Must run inside :func:`with_gradients`.

    Args:
        model: Maps images to logits.
        images: (batch, channels, height, width)
        classes: The class, or one per image, int64 (batch,).
        intermediate: Tells, once the model has run, by which tensor to differentiate; ``None`` for the images.

    Raises:
        ValueError: The answer does not depend on it by a path that has gradients.
    """
    inputs = images.detach().clone().requires_grad_()
    logits = model(inputs)
    chosen = logits[:, classes] if isinstance(classes, int) else logits.gather(1, classes.unsqueeze(1))
    logit = chosen.sum()
    if not logit.requires_grad:
        raise ValueError(
            "the model's answer has no gradient: its forward runs under torch.no_grad, detaches its values, or "
            "computes with integers"
        )
    wanted = inputs if intermediate is None else intermediate()
    (gradient,) = torch.autograd.grad(logit, wanted, allow_unused=True)
    return torch.zeros_like(wanted) if gradient is None else gradient


def check_image(images: Tensor) -> None:
    """Raise ValueError unless the tensor is one image, normalised for a network."""
    if images.dim() != 4 or images.shape[0] != 1 or not images.is_floating_point():
        shape = tuple(images.shape)
        raise ValueError(
            f"images must be one normalised image (1, channels, height, width), got {images.dtype} {shape}"
        )
