import copy

import pytest
import torch

from zoo.layers.positions import RelativePositionBias1d, RelativePositionBias2d


def test_a_sequence_reads_key_minus_query_and_far_offsets_share_the_farthest() -> None:
    bias = RelativePositionBias1d(2, max_distance=2)
    bias.table.data = torch.tensor([[10.0, 11, 12, 13, 14], [20, 21, 22, 23, 24]])
    expected = [[12, 13, 14, 14], [11, 12, 13, 14], [10, 11, 12, 13], [10, 10, 11, 12]]
    assert bias(4)[0, 0].tolist() == expected
    assert (bias(4)[0, 1] - 10).tolist() == expected


def test_the_last_query_stands_at_the_last_key_or_the_first_at_the_first() -> None:
    bias = RelativePositionBias1d(1, max_distance=9)
    bias.table.data = torch.arange(-9.0, 10)[None]
    assert bias(2, 4)[0, 0].tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    assert bias(2, 4, alignment="first")[0, 0].tolist() == [[0, 1, 2, 3], [-1, 0, 1, 2]]


def test_a_grid_reads_key_minus_query_in_rows_and_columns() -> None:
    bias = RelativePositionBias2d(1, (2, 3))
    # The entry of offset (dy, dx) is 10 dy + dx.
    bias.table.data = (10 * torch.arange(-1.0, 2)[:, None] + torch.arange(-2.0, 3))[None]
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    expected = [[10 * (y - row) + x - column for y, x in places] for row, column in places]
    assert bias()[0, 0].tolist() == expected


def test_pairs_with_prefix_tokens_have_scalars_of_their_own() -> None:
    bias = RelativePositionBias2d(2, (1, 2), num_prefix_tokens=2)
    bias.table.data.fill_(7)
    bias.prefix.data = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    assert bias()[0].tolist() == [
        [[3, 3, 1, 1], [3, 3, 1, 1], [2, 2, 7, 7], [2, 2, 7, 7]],
        [[6, 6, 4, 4], [6, 6, 4, 4], [5, 5, 7, 7], [5, 5, 7, 7]],
    ]
    bias().sum().backward()
    assert bias.prefix.grad.tolist() == [[4, 4, 4]] * 2


def test_another_grid_gets_a_resized_table_whose_middle_is_still_offset_zero() -> None:
    bias = RelativePositionBias2d(1, (3, 3))
    rows, columns = torch.meshgrid(torch.arange(-2.0, 3), torch.arange(-2.0, 3), indexing="ij")
    bias.table.data = -(rows.square() + columns.square())[None]
    resized = bias((5, 2))[0, 0]
    assert resized.shape == (10, 10)
    assert resized.argmax(1).tolist() == list(range(10))
    torch.testing.assert_close(resized, resized.T)
    assert bias((2, 5))[0, 0].shape == (10, 10)
    assert not torch.equal(bias((2, 5)), bias((5, 2)))


@pytest.mark.parametrize(("old", "new"), [((2, 8), (4, 4)), ((3, 5), (5, 3)), ((2, 2), (2, 2))])
def test_a_state_dict_of_another_grid_is_resized_when_loaded(old: tuple, new: tuple) -> None:
    source, target = (RelativePositionBias2d(2, size, num_prefix_tokens=1) for size in (old, new))
    state = source.state_dict()
    before = copy.deepcopy(state)
    target.load_state_dict(state)
    torch.testing.assert_close(target(), source(new))
    assert all(torch.equal(state[name], before[name]) for name in before)
    with pytest.raises(RuntimeError, match="size mismatch for table"):
        RelativePositionBias2d(3, new, num_prefix_tokens=1).load_state_dict(state)


def test_doubles_are_resized_in_float64() -> None:
    bias = RelativePositionBias2d(1, (3, 3)).double()
    assert not torch.equal(bias((4, 4)), bias.float()((4, 4)).double())


def test_options_out_of_range_are_refused() -> None:
    for build, message in (
        (lambda: RelativePositionBias1d(0, max_distance=1), r"num_heads \(0\)"),
        (lambda: RelativePositionBias1d(1, max_distance=-1), r"max_distance \(-1\)"),
        (lambda: RelativePositionBias2d(1, (2,)), "must be rows and columns"),
        (lambda: RelativePositionBias2d(1, (2, 0)), r"grid_size columns \(0\)"),
        (lambda: RelativePositionBias2d(1, (2, 2))(grid_size=4), "must be rows and columns"),
        (lambda: RelativePositionBias2d(1, (2, 2), num_prefix_tokens=-1), r"num_prefix_tokens \(-1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            build()
