"""Which keys each query may look at: a mask, causality and a window as one thing, dense only when asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional.masks import query_positions


@dataclass(frozen=True)
class Visibility:
    """The keys that each query of an attention may look at.

    Causality and a window together let each query see one run of keys, so they cost memory only when a dense mask is
    asked for.

    Args:
        query_tokens: Number of queries.
        key_tokens: Number of keys.
        device: Where masks are made.
        mask: Boolean (batch, heads, query_tokens, key_tokens), each axis its size or 1; ``None`` hides nothing.
        is_causal: No query looks past its own position.
        window: No query looks further than this to either side; ``None`` for any distance.
        alignment: Whether the last or the first query and key stand at the same position.
    """

    query_tokens: int
    key_tokens: int
    device: torch.device
    mask: Tensor | None = None
    is_causal: bool = False
    window: int | None = None
    alignment: str = "last"

    @property
    def is_banded(self) -> bool:
        """Whether causality or a window hides keys by their distance."""
        return self.is_causal or self.window is not None

    @property
    def is_full(self) -> bool:
        """Whether every query may look at every key."""
        return self.mask is None and not self.is_banded

    @property
    def is_mask_of_keys(self) -> bool:
        """Whether the mask, if any, hides a key from all queries alike."""
        return self.mask is None or self.mask.shape[2] == 1

    def intersect(self, mask: Tensor) -> "Visibility":
        """Return what is left when ``mask`` hides keys too."""
        return replace(self, mask=mask if self.mask is None else self.mask & mask)

    def of_heads(self, heads: Sequence[int]) -> "Visibility":
        """Return that of some of the heads."""
        if self.mask is None or self.mask.shape[1] == 1:
            return self
        return replace(self, mask=self.mask[:, list(heads)])

    def intervals(self) -> tuple[Tensor, Tensor]:
        """Return the first key of each query by distance alone, and the one past its last; the mask left aside."""
        positions = query_positions(self.query_tokens, self.key_tokens, self.alignment, self.device)
        first = torch.zeros_like(positions) if self.window is None else positions - self.window
        reach = 0 if self.is_causal else self.window
        past = torch.full_like(positions, self.key_tokens) if reach is None else positions + reach + 1
        return first.clamp(0, self.key_tokens), past.clamp(0, self.key_tokens)

    def dense(self) -> Tensor:
        """Return it as one mask (batch, heads, query_tokens, key_tokens), each axis its size or 1."""
        if not self.is_banded:
            return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device) if self.mask is None else self.mask
        first, past = self.intervals()
        keys = torch.arange(self.key_tokens, device=self.device)
        band = ((keys >= first[:, None]) & (keys < past[:, None]))[None, None]
        return band if self.mask is None else band & self.mask

    def sees(self, marked: Tensor) -> Tensor:
        """Tell which queries may look at a marked key.

        Args:
            marked: Boolean (batch, heads, key_tokens), the first two each their size or 1.

        Returns:
            Boolean (batch, heads, query_tokens), each axis its size or 1.
        """
        if not self.is_mask_of_keys:
            return (self.dense() & marked[:, :, None, :]).any(-1)
        if self.mask is not None:
            marked = marked & self.mask[:, :, 0]
        if not self.is_banded:
            return marked.any(-1, keepdim=True)
        first, past = self.intervals()
        counts = functional.pad(marked.expand(*marked.shape[:2], self.key_tokens).cumsum(-1), (1, 0))
        return counts[..., past] > counts[..., first]

    def blind(self) -> Tensor:
        """Tell which queries have nothing to look at: boolean (batch, heads, query_tokens), each axis its size or 1."""
        return ~self.sees(torch.ones(1, 1, self.key_tokens, dtype=torch.bool, device=self.device))
