"""Attention row by row: each query is given the keys it may look at, and no others."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def attend_by_row() -> Callable[..., Tensor]:
    """Return attention that picks keys by index, so that a hidden one cannot take part in anything."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        batch, heads, query_tokens, head_dim = query.shape
        full = (batch, heads, query_tokens, key.shape[2])
        visible = (torch.ones(1, 1, 1, 1, dtype=torch.bool) if visible is None else visible).expand(full)
        bias = torch.zeros(1, 1, 1, 1, dtype=query.dtype).expand(full) if bias is None else bias.expand(full)
        rows = []
        for sample in range(batch):
            for head in range(heads):
                for row in range(query_tokens):
                    seen = visible[sample, head, row].nonzero().flatten()
                    if len(seen) == 0:
                        rows.append(torch.zeros(value.shape[-1], dtype=query.dtype))
                        continue
                    products = key[sample, head, seen] @ query[sample, head, row]
                    scores = products * (head_dim**-0.5 if scale is None else scale) + bias[sample, head, row, seen]
                    exponentials = (scores - scores.max().detach()).exp()
                    rows.append(exponentials / exponentials.sum() @ value[sample, head, seen])
        return torch.stack(rows).reshape(batch, heads, query_tokens, value.shape[-1])

    return attend
