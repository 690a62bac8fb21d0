"""How large a network is."""

from torch import nn


def count_parameters(model: nn.Module) -> int:
    """Count the scalars of all parameters; one that several modules share is counted once.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters())
