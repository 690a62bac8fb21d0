"""Attention that loads, for each block of queries, only the keys that some query of it looks at.

Time and memory grow linearly with the tokens. What is computed is ordinary attention: each block becomes a sample of
its own, with a mask for the pairs that are loaded but not looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.functional.masks import draw_key_blocks

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class BlockPattern:
    """Which tokens stand in each block of queries, which keys it loads, and which pairs count.

    Args:
        queries: Tokens of each block, (blocks, block_size); past the last token any index.
        keys: Tokens that each block loads, (blocks, loaded); any index where ``pairs`` is False for all queries.
        pairs: Boolean (blocks, block_size, loaded); each pair of tokens is True at most once.
        places: Where each token stands in the flattened ``queries``, (tokens,).
    """

    queries: Tensor
    keys: Tensor
    pairs: Tensor
    places: Tensor


def local_pattern(
    num_tokens: int,
    *,
    window: int,
    is_causal: bool = False,
    dilation: int = 1,
    num_global: int = 0,
    num_random: int = 0,
    random_block_size: int = 1,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Return the pattern of a sliding window, with the first tokens and random blocks of keys in sight of all.

    Args:
        num_tokens: At least 1.
        window: Keys to either side that a query looks at, at least 0.
        is_causal: Leave out the keys after the query.
        dilation: Distance between these keys; tokens that are not a multiple of it apart never meet in the window.
        num_global: The first tokens, which every query looks at.
        num_random: Blocks of keys that each block of queries looks at besides; not with ``dilation``.
        random_block_size: Size of these blocks of queries and keys.
        seed: What the random blocks are drawn from.
        device: Where the pattern is made.
    """
    num_global = min(num_global, num_tokens)
    size = random_block_size if num_random else _block_size(window)
    queries, band = _band_blocks(num_tokens, size, window, is_causal, dilation, device)
    steps = torch.arange(band.shape[1], device=device) - torch.arange(queries.shape[1], device=device)[:, None]
    in_window = (steps >= 0) & (steps <= (window if is_causal else 2 * window))
    is_token = (band >= num_global) & (band < num_tokens)
    keys, pairs = [band], [in_window & is_token[:, None, :]]
    if num_global:
        keys.append(torch.arange(num_global, device=device).expand(len(queries), -1))
        pairs.append(torch.ones(1, 1, 1, dtype=torch.bool, device=device).expand(*queries.shape, num_global))
    if num_random:
        drawn = draw_key_blocks(len(queries), num_random, seed, device)[:, :, None] * size
        drawn = (drawn + torch.arange(size, device=device)).flatten(1)
        outside = (drawn[:, None, :] - queries[:, :, None]).abs() > window
        keys.append(drawn)
        pairs.append(outside & ((drawn >= num_global) & (drawn < num_tokens))[:, None, :])
    return BlockPattern(
        queries=queries.clamp(max=num_tokens - 1),
        keys=torch.cat(keys, 1).clamp(0, num_tokens - 1),
        pairs=torch.cat(pairs, 2),
        places=queries.flatten().argsort()[:num_tokens],
    )


def loaded_keys(*, window: int, is_causal: bool = False) -> int:
    """Return how many keys a block of a plain sliding window loads."""
    return _block_size(window) + (window if is_causal else 2 * window)


def block_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, pattern: BlockPattern, *, key_mask: Tensor | None, attend: Attend
) -> Tensor:
    """Return the attention over the pairs of a pattern.

    Args:
        query: (batch, heads, tokens, head_dim)
        key: (batch, heads, tokens, head_dim)
        value: (batch, heads, tokens, value_dim)
        pattern: Made for this number of tokens.
        key_mask: Keys that may be looked at, boolean (batch, heads, 1, tokens), each axis its size or 1; ``None`` for
            all.
        attend: Attention under a mask: ``attend(query, key, value, mask)``.

    Returns:
        (batch, heads, tokens, value_dim)
    """
    batch, heads = query.shape[:2]
    blocks = len(pattern.queries)
    mask = pattern.pairs[:, None, None]
    if key_mask is not None:
        loaded = _gather(key_mask.expand(-1, -1, -1, query.shape[2]).mT, pattern.keys).mT
        mask = mask & loaded
    # Samples stand in the batch axis with the blocks only where a mask tells them apart; else among the heads.
    mask_batch, mask_heads = mask.shape[1:3]
    if (mask_batch, mask_heads) == (1, 1):
        groups, members = blocks, batch * heads
        mask = mask[:, 0]
    else:
        groups, members = blocks * batch, heads
        mask = mask.expand(-1, batch, -1, -1, -1).reshape(groups, mask_heads, *mask.shape[3:])
    blocks_of_query, blocks_of_key, blocks_of_value = (
        _gather(tensor, index).reshape(groups, members, index.shape[1], tensor.shape[-1])
        for tensor, index in ((query, pattern.queries), (key, pattern.keys), (value, pattern.keys))
    )
    output = attend(blocks_of_query, blocks_of_key, blocks_of_value, mask)
    output = output.reshape(blocks, batch, heads, pattern.queries.shape[1], value.shape[-1])
    flat = output.permute(1, 2, 0, 3, 4).flatten(2, 3)
    return flat.index_select(2, pattern.places)


def _gather(tensor: Tensor, index: Tensor) -> Tensor:
    """From (batch, heads, tokens, width) to (blocks, batch, heads, members, width)."""
    rows = tensor.permute(2, 0, 1, 3).index_select(0, index.flatten()).unflatten(0, index.shape)
    return rows.permute(0, 2, 3, 1, 4)


def _block_size(window: int) -> int:
    return max(16, window)


def _band_blocks(
    num_tokens: int, size: int, window: int, is_causal: bool, dilation: int, device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    """Return the tokens of each block of ``size`` queries and those of its window, out-of-range ones included.

    With a dilation, the tokens of one remainder stand together.
    """
    starts = torch.arange(0, -(-num_tokens // dilation), size, device=device)[:, None]
    length = size + (window if is_causal else 2 * window)
    streams = torch.arange(dilation, device=device)[:, None, None]
    queries = (starts + torch.arange(size, device=device)) * dilation + streams
    keys = (starts + torch.arange(length, device=device) - window) * dilation + streams
    return queries.flatten(0, 1), keys.flatten(0, 1)
