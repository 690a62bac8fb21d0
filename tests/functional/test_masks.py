"""Masks against written-out rows: x where a query may look."""

import pytest
import torch
from torch import Tensor

from zoo.functional import (
    big_bird_mask,
    causal_mask,
    dilated_mask,
    global_mask,
    intersect_masks,
    padding_mask,
    random_mask,
    sliding_window_mask,
    strided_mask,
    unite_masks,
    window_partition_mask,
)


def rows(mask: Tensor) -> list[str]:
    assert mask.dtype == torch.bool
    assert mask.shape[:2] == (1, 1)
    return ["".join(".x"[value] for value in row) for row in mask[0, 0].tolist()]


def test_padding_shows_the_first_keys_of_each_sample() -> None:
    mask = padding_mask(torch.tensor([2, 0, 4]), 4)
    assert mask.shape == (3, 1, 1, 4)
    assert [rows(sample[None]) for sample in mask] == [["xx.."], ["...."], ["xxxx"]]


@pytest.mark.parametrize(
    ("sizes", "alignment", "expected"),
    [
        ((3, 3), "last", ["x..", "xx.", "xxx"]),
        ((3, 3), "first", ["x..", "xx.", "xxx"]),
        ((2, 4), "last", ["xxx.", "xxxx"]),
        ((2, 4), "first", ["x...", "xx.."]),
        ((4, 2), "last", ["..", "..", "x.", "xx"]),
        ((4, 2), "first", ["x.", "xx", "xx", "xx"]),
    ],
)
def test_causal(sizes: tuple[int, int], alignment: str, expected: list[str]) -> None:
    assert rows(causal_mask(*sizes, alignment=alignment)) == expected


@pytest.mark.parametrize(
    ("sizes", "window", "alignment", "expected"),
    [
        ((4, 4), 1, "last", ["xx..", "xxx.", ".xxx", "..xx"]),
        ((3, 3), 0, "last", ["x..", ".x.", "..x"]),
        ((2, 5), 1, "last", ["..xxx", "...xx"]),
        ((2, 5), 1, "first", ["xx...", "xxx.."]),
        ((4, 2), 1, "last", ["..", "x.", "xx", "xx"]),
    ],
)
def test_sliding_window(sizes: tuple[int, int], window: int, alignment: str, expected: list[str]) -> None:
    assert rows(sliding_window_mask(*sizes, window=window, alignment=alignment)) == expected


def test_dilated_leaves_out_what_lies_between() -> None:
    assert rows(dilated_mask(6, window=1, dilation=2)) == ["x.x...", ".x.x..", "x.x.x.", ".x.x.x", "..x.x.", "...x.x"]
    assert torch.equal(dilated_mask(7, window=2, dilation=1), sliding_window_mask(7, window=2))


def test_strided_shows_the_same_remainder() -> None:
    assert rows(strided_mask(5, stride=2)) == ["x.x.x", ".x.x.", "x.x.x", ".x.x.", "x.x.x"]


def test_global_tokens_see_and_are_seen() -> None:
    assert rows(global_mask(4, num_global=2)) == ["xxxx", "xxxx", "xx..", "xx.."]
    assert rows(global_mask(2, num_global=0)) == ["..", ".."]


def test_windows_of_a_grid_side_by_side_and_shifted() -> None:
    assert rows(window_partition_mask((2, 3), (2, 2))) == ["xx.xx.", "xx.xx.", "..x..x"] * 2
    assert rows(window_partition_mask((2, 3), (2, 2), shift=(1, 1))) == [
        "x.....", ".xx...", ".xx...", "...x..", "....xx", "....xx",
    ]  # fmt: skip


def test_random_keys_are_those_of_the_seed_different_and_spread() -> None:
    mask = random_mask(50, num_random=5, seed=3)
    assert mask.sum(-1).eq(5).all()
    assert torch.equal(mask, random_mask(50, num_random=5, seed=3))
    others = [random_mask(50, num_random=5, seed=seed) for seed in range(200)]
    assert not any(torch.equal(one, two) for one, two in zip(others[1:], others, strict=False))
    share = torch.stack(others).double().mean(0)
    assert (share - 0.1).abs().max() < 5.5 * (0.09 / 200) ** 0.5
    assert share.std().item() == pytest.approx((0.09 / 200) ** 0.5, rel=0.1)


def test_random_blocks_are_looked_at_as_a_whole_and_torchs_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    mask = random_mask(10, num_random=1, seed=0, block_size=4)
    assert torch.equal(torch.rand(3), expected)
    blocks = [mask[0, 0, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4] for i in range(3) for j in range(3)]
    assert all(block.all() or not block.any() for block in blocks)
    assert sum(bool(block.all()) for block in blocks) == 3
    assert random_mask(3, num_random=9, seed=0).all()


def test_big_bird_is_window_and_global_and_random() -> None:
    parts = [
        sliding_window_mask(20, window=1), global_mask(20, num_global=2), random_mask(20, num_random=2, seed=1),
    ]  # fmt: skip
    mask = big_bird_mask(20, window=1, num_global=2, num_random=2, seed=1)
    assert torch.equal(mask, parts[0] | parts[1] | parts[2])
    assert not mask.all()


def test_masks_unite_and_intersect() -> None:
    lengths = padding_mask(torch.tensor([2, 3]), 3)
    assert rows(intersect_masks(causal_mask(3), lengths)[:1]) == ["x..", "xx.", "xx."]
    assert rows(unite_masks(causal_mask(3), lengths)[:1]) == ["xx.", "xx.", "xxx"]
    assert unite_masks(causal_mask(3)).shape == (1, 1, 3, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: padding_mask(torch.tensor([4]), 3), r"lengths \(\[4\]\) must lie between 0 and num_tokens \(3\)"),
        (lambda: padding_mask(torch.tensor([-1]), 3), r"lengths \(\[-1\]\) must lie between"),
        (lambda: padding_mask(torch.tensor([1.0]), 3), r"lengths \(torch.float32, shape \(1,\)\) must be integers"),
        (lambda: padding_mask(torch.ones(1, 3, dtype=torch.bool), 3), "must be integers of shape"),
        (lambda: causal_mask(0), r"query_tokens \(0\) must be"),
        (lambda: causal_mask(2, alignment="left"), r"alignment \('left'\) must be one of last, first"),
        (lambda: sliding_window_mask(3, window=-1), r"window \(-1\) must be an integer of at least 0"),
        (lambda: dilated_mask(3, window=1, dilation=0), r"dilation \(0\) must be"),
        (lambda: strided_mask(3, stride=0), r"stride \(0\) must be"),
        (lambda: global_mask(3, num_global=-1), r"num_global \(-1\) must be"),
        (lambda: random_mask(3, num_random=1, seed=0, block_size=0), r"block_size \(0\) must be"),
        (lambda: unite_masks(), "give one mask or more"),
        (lambda: unite_masks(torch.ones(3, 3, dtype=torch.bool)), r"shape \(3, 3\)\) must be boolean with the axes"),
        (lambda: intersect_masks(torch.ones(1, 1, 3, 3)), r"torch.float32, shape \(1, 1, 3, 3\)"),
    ],
)
def test_what_is_no_mask_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
