"""Stochastic depth: branches left out at random, image by image."""

from torch import Tensor, nn

from zoo.functional.validation import check_probability


class DropPath(nn.Module):
    """Sets a branch to 0 for a random share of the images in training, and scales the others by ``1 / (1 - rate)``.

    Args:
        rate: Share of the images, 0 up to 1.

    Shape:
        (batch, ...), kept

    Raises:
        ValueError: The rate is out of its range.

    Source:
        Huang et al.: Deep Networks with Stochastic Depth, ECCV 2016, https://arxiv.org/abs/1603.09382
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = check_probability("rate", rate)

    def forward(self, branch: Tensor) -> Tensor:
        """Return the branch of the images that keep it."""
        if not self.training or self.rate == 0:
            return branch
        kept = branch.new_empty((branch.shape[0],) + (1,) * (branch.ndim - 1)).bernoulli_(1 - self.rate)
        return branch * (kept / (1 - self.rate))

    def extra_repr(self) -> str:
        """Return what ``print`` shows."""
        return f"rate={self.rate}"
