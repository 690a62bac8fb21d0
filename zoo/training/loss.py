"""Cross entropy that means the same for integer and for mixed targets."""

import torch
from torch import nn
from torch.nn import functional

IGNORED_TARGET = -100


class MixedTargetCrossEntropy(nn.Module):
    r"""Cross entropy over integer or soft targets with one normalisation for both.

    With targets ``t`` (one-hot for integers), class weights ``w`` and smoothing ``e`` over ``K`` classes:

    .. math:: L = \frac{(1 - e) \sum_i \sum_c w_c t_{ic} (-\log p_{ic})
              + \frac{e}{K} \sum_i \sum_c w_c (-\log p_{ic})}{\sum_i \sum_c w_c t_{ic}}

    For integer targets this is torch's ``cross_entropy``. For soft targets torch divides by the batch size
    instead, so that switching mixup on would change the size of a weighted loss; here it does not.

    Args:
        class_weights: One weight per class, ``(num_classes,)``; ``None`` for 1 each.
        label_smoothing: ``e``, 0 to below 1.

    Shape:
        - logits: ``(batch, num_classes)``
        - targets: int64 ``(batch,)``, where -100 marks an image to ignore, or float ``(batch, num_classes)`` with
          rows that sum to 1
        - Output: a scalar; 0 (with zero gradients) when every image is ignored or weighs 0

    >>> logits, targets = torch.tensor([[2.0, 0, 0], [0, 2.0, 0]]), torch.tensor([0, 1])
    >>> loss = MixedTargetCrossEntropy(torch.tensor([1.0, 3.0, 1.0]))
    >>> round(loss(logits, targets).item(), 4), round(loss(logits, torch.eye(3)[targets]).item(), 4)
    (0.2395, 0.2395)
    """

    class_weights: torch.Tensor | None

    def __init__(self, class_weights: torch.Tensor | None = None, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.label_smoothing = label_smoothing

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        logits = logits.float()
        if targets.ndim == 1:
            counted = targets != IGNORED_TARGET
            targets = functional.one_hot(targets.where(counted, 0), logits.shape[1]) * counted[:, None]
        targets = targets.to(logits.dtype)
        negative_log_p = -functional.log_softmax(logits, dim=1)
        if self.class_weights is not None:
            negative_log_p = negative_log_p * self.class_weights
            weight = (targets * self.class_weights).sum()
        else:
            weight = targets.sum()
        total = (1 - self.label_smoothing) * (targets * negative_log_p).sum()
        if self.label_smoothing:
            counted_rows = targets.sum(dim=1, keepdim=True)
            total = total + self.label_smoothing / logits.shape[1] * (counted_rows * negative_log_p).sum()
        return total / weight.where(weight > 0, 1)
