"""The exact attention weights of a transformer, layer by layer, and which tokens are places of the image."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zoo.evaluation.predictions import evaluation_mode
from zoo.explain.cells import Cells, follow_cells
from zoo.layers.sequence_pooling import SequencePooling
from zoo.layers.token_self_attention import TokenSelfAttention


@dataclass(frozen=True)
class TokenLayout:
    """How the tokens of an image stand in their sequence: a prefix, then a grid row by row.

    Args:
        num_prefix_tokens: Class token and registers, which belong to no place.
        grid_size: Rows and columns.
        reads_class_token: Whether the first token is what the network classifies.

    >>> TokenLayout(1, (2, 3), True).to_grid(torch.arange(7)).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """

    num_prefix_tokens: int
    grid_size: tuple[int, int]
    reads_class_token: bool

    def to_grid(self, per_token: Tensor) -> Tensor:
        """Drop the prefix and lay the rest out: (..., tokens) to (..., rows, columns).

        Raises:
            ValueError: The number of tokens is not that of prefix and grid.
        """
        rows, columns = self.grid_size
        expected = self.num_prefix_tokens + rows * columns
        if per_token.shape[-1] != expected:
            raise ValueError(
                f"there are {per_token.shape[-1]} tokens, but {self.num_prefix_tokens} before a grid of {rows} x "
                f"{columns} make {expected}"
            )
        return per_token[..., self.num_prefix_tokens :].unflatten(-1, self.grid_size)


@dataclass(frozen=True)
class TokenAttention:
    """All attention weights of a network for one image.

    Args:
        names: The attention modules in the order in which they ran.
        weights: Of each, (heads, tokens, tokens); row i tells how much token i takes from each token.
        reading: How much each token counts for the classifier, (tokens,), summing to 1.
        layout: Which tokens are places.
        cells: Where those lie on the image.
        image_size: Height and width of the network's input.
    """

    names: tuple[str, ...]
    weights: tuple[Tensor, ...]
    reading: Tensor
    layout: TokenLayout
    cells: Cells
    image_size: tuple[int, int]

    def looked_at(self, layer: int) -> Tensor:
        """Return how much each place is looked at by what the classifier reads, (heads, rows, columns).

        With a class token, its row of the weights; otherwise the mean of all rows, each counting as much as the
        pooling lets its token count.
        """
        return self.layout.to_grid(torch.einsum("t,htk->hk", self.reading, self.weights[layer]))

    def spread(self, grid: Tensor) -> Tensor:
        """Spread values on the grid (rows, columns) over the pixels of the network's input."""
        return self.cells.spread(grid, self.image_size)


def find_token_attention(model: nn.Module) -> dict[str, TokenSelfAttention]:
    """Return the self attentions over tokens by qualified name, in the order of the modules."""
    return {name: module for name, module in model.named_modules() if isinstance(module, TokenSelfAttention)}


def find_token_layout(model: nn.Module, image_size: tuple[int, int]) -> TokenLayout:
    """Return how the tokens of an image of ``image_size`` stand.

    Raises:
        ValueError: No part of the model tells, by ``num_prefix_tokens`` and ``grid_size(image_size)``.
    """
    for module in model.modules():
        num_prefix_tokens, grid_size = (getattr(module, name, None) for name in ("num_prefix_tokens", "grid_size"))
        if isinstance(num_prefix_tokens, int) and callable(grid_size):
            rows, columns = grid_size(image_size)
            reads_class_token = getattr(module, "pooling", None) == "class_token"
            return TokenLayout(num_prefix_tokens, (rows, columns), reads_class_token)
    raise ValueError(
        "the model has attention over tokens, but no part of it tells which of them are places of the image: "
        "num_prefix_tokens and grid_size(image_size)"
    )


@torch.no_grad()
def read_token_attention(model: nn.Module, images: Tensor) -> TokenAttention | None:
    """Return the exact weights with which a network attends to one image, ``None`` where it has no such attention.

    The network runs as ever, on its fast path, which never holds weights; each attention then computes them from what
    it was given.

    Args:
        model: Any network with self attention of the zoo.
        images: One image, (1, channels, height, width).
    """
    modules = find_token_attention(model)
    if not modules:
        return None
    image_size = (images.shape[2], images.shape[3])
    layout = find_token_layout(model, image_size)
    read: dict[str, Tensor] = {}
    pooling: list[Tensor] = []

    def keep_pooling(module: SequencePooling, inputs: tuple[Any, ...]) -> None:
        pooling.append(module.weights(inputs[0])[0].float())

    with evaluation_mode(model), follow_cells(model, image_size) as tracker, ExitStack() as stack:
        for name, module in modules.items():

            def keep(module: Any, inputs: tuple[Any, ...], options: dict[str, Any], name: str = name) -> None:
                read[name] = module.attention_weights(*inputs, **options)[0].float()

            stack.callback(module.register_forward_pre_hook(keep, with_kwargs=True).remove)
        for part in model.modules():
            if isinstance(part, SequencePooling):
                stack.callback(part.register_forward_pre_hook(keep_pooling).remove)
        model(images)
    weights = tuple(weights.cpu() for weights in read.values())
    return TokenAttention(
        names=tuple(read),
        weights=weights,
        reading=_reading(layout, weights[0].shape[-1], pooling),
        layout=layout,
        cells=tracker.of(layout.grid_size),
        image_size=image_size,
    )


def _reading(layout: TokenLayout, num_tokens: int, pooling: list[Tensor]) -> Tensor:
    reading = torch.zeros(num_tokens)
    if layout.reads_class_token:
        reading[0] = 1
    elif pooling:
        reading[layout.num_prefix_tokens :] = pooling[-1].cpu()
    else:
        reading[layout.num_prefix_tokens :] = 1 / (num_tokens - layout.num_prefix_tokens)
    return reading
