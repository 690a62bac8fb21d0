import pytest
import torch

from zoo.functional.masks import window_partition_mask
from zoo.functional.windows import WindowPartition

CASES = [
    ((4, 6), (2, 3), (0, 0)),
    ((4, 6), (2, 3), (1, 1)),
    ((5, 7), (3, 2), (2, 1)),
    ((1, 9), (1, 4), (0, 2)),
    ((2, 2), (5, 5), (0, 0)),
]


@pytest.mark.parametrize(("grid_size", "window_size", "shift"), CASES, ids=str)
def test_windows_hold_the_tokens_that_the_mask_joins_and_go_back_where_they_came_from(
    grid_size: tuple[int, int], window_size: tuple[int, int], shift: tuple[int, int]
) -> None:
    count = grid_size[0] * grid_size[1]
    partition = WindowPartition(grid_size, window_size, shift)
    tokens = torch.arange(1, 2 * 3 * count + 1).reshape(2, 3, count, 1)
    windows = partition.split(tokens)
    assert torch.equal(partition.join(windows), tokens)

    together = torch.zeros(count, count, dtype=torch.bool)
    for window in partition.split(torch.arange(1, count + 1).reshape(1, 1, count, 1)):
        members = window[window > 0] - 1
        together[members[:, None], members] = True
    assert torch.equal(together, window_partition_mask(grid_size, window_size, shift=shift)[0, 0])

    mask = partition.mask(None, 2, tokens.device)
    is_token = windows[:, :1].mT > 0
    assert partition.is_exact == bool(is_token.all()) == (mask is None)
    assert mask is None or torch.equal(mask, is_token)
