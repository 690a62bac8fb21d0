"""The two-layer perceptron of a transformer's block."""

from torch import Tensor, nn

from zoo.functional.validation import check_positive_int, check_probability


class MLP(nn.Module):
    """``W2 gelu(W1 x + b1) + b2`` for each token by itself, with dropout after both layers.

    Args:
        embed_dim: Width of input and output, at least 1.
        hidden_dim: Width between the layers, at least 1.
        dropout: Share dropped in training, 0 up to 1.

    Shape:
        (..., embed_dim), kept

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> MLP(8, 32)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, embed_dim: int, hidden_dim: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive_int("embed_dim", embed_dim)
        self.fc1 = nn.Linear(embed_dim, check_positive_int("hidden_dim", hidden_dim))
        self.activation = nn.GELU()
        self.dropout1 = nn.Dropout(check_probability("dropout", dropout))
        self.fc2 = nn.Linear(hidden_dim, embed_dim)
        self.dropout2 = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map the tokens."""
        hidden = self.dropout1(self.activation(self.fc1(tokens)))
        output: Tensor = self.dropout2(self.fc2(hidden))
        return output
