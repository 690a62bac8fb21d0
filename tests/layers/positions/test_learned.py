import copy

import pytest
import torch
from torch.nn import functional

from zoo.layers.positions import LearnedPositions, resize_grid, split_positions


def create(grid_size: tuple[int, int], num_prefix_tokens: int = 1) -> LearnedPositions:
    torch.manual_seed(0)
    return LearnedPositions(8, grid_size=grid_size, num_prefix_tokens=num_prefix_tokens)


def test_each_place_has_its_vector_and_the_prefix_comes_first() -> None:
    positions = create((2, 3), 2)
    placed = positions(torch.zeros(4, 8, 8))
    expected = [*positions.prefix[0], *positions.grid[0, 0], *positions.grid[0, 1]]
    assert torch.equal(placed, torch.stack(expected).expand(4, -1, -1))
    assert sum(parameter.numel() for parameter in positions.parameters()) == 8 * 8
    assert [name for name, _ in create((2, 3), 0).named_parameters()] == ["grid"]


def test_a_grid_of_as_many_tokens_but_another_shape_is_resized() -> None:
    """The numbers 0 to 15 on 2 x 8, brought to 4 x 4: neither the same numbers in rows of 4, nor every other one."""
    grid = torch.arange(16.0).reshape(1, 2, 8, 1)
    resized = resize_grid(grid, (4, 4))
    torch.testing.assert_close(resized[0, 0, :, 0], torch.tensor([-0.16, 1.75, 3.84, 5.75]), rtol=0, atol=0.01)
    # 15 minus the grid is the grid read backwards, and stays so.
    torch.testing.assert_close(resized.flip(1, 2), 15 - resized)
    assert not torch.allclose(resized.flatten(), grid.flatten(), atol=0.1)


def test_a_constant_grid_stays_constant_and_its_own_size_changes_nothing() -> None:
    grid = torch.full((1, 3, 5, 2), 0.25)
    torch.testing.assert_close(resize_grid(grid, (7, 2)), torch.full((1, 7, 2, 2), 0.25))
    assert resize_grid(grid, [3, 5]) is grid


def test_halves_are_resized_in_float32_and_doubles_in_float64() -> None:
    grid = torch.randn(1, 4, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(resize_grid(grid.to(dtype), (6, 3)), resize_grid(grid.to(dtype).float(), (6, 3)).to(dtype))
    assert not torch.equal(resize_grid(grid, (6, 3)), resize_grid(grid.float(), (6, 3)).double())


@pytest.mark.parametrize("grid_size", [(8, 2), (5, 7), (2, 2)])
def test_images_of_another_size_get_the_resized_grid_and_the_same_prefix(grid_size: tuple[int, int]) -> None:
    positions = create((4, 4))
    placed = positions(torch.zeros(1, 1 + grid_size[0] * grid_size[1], 8), grid_size)
    assert torch.equal(placed[:, :1], positions.prefix)
    channels_first = positions.grid.permute(0, 3, 1, 2)
    expected = functional.interpolate(channels_first, size=grid_size, mode="bicubic", antialias=True)
    torch.testing.assert_close(placed[:, 1:], expected.flatten(2).mT)
    placed.square().sum().backward()
    assert positions.grid.grad.ne(0).all()


@pytest.mark.parametrize(("old", "new"), [((2, 8), (4, 4)), ((3, 5), (5, 3)), ((2, 2), (3, 4))])
@pytest.mark.parametrize("num_prefix_tokens", [0, 1])
def test_a_state_dict_of_another_grid_is_resized_when_loaded(old: tuple, new: tuple, num_prefix_tokens: int) -> None:
    source, target = create(old, num_prefix_tokens), create(new, num_prefix_tokens)
    state = source.state_dict()
    before = copy.deepcopy(state)
    target.load_state_dict(state)
    assert torch.equal(target.grid, resize_grid(source.grid, new))
    assert state.keys() == before.keys()
    assert all(torch.equal(state[name], before[name]) for name in before)
    if num_prefix_tokens:
        assert torch.equal(target.prefix, source.prefix)


def test_a_state_dict_of_another_width_or_prefix_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for grid"):
        create((2, 3)).load_state_dict(LearnedPositions(6, grid_size=(4, 4), num_prefix_tokens=1).state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for prefix"):
        create((2, 3)).load_state_dict(create((4, 4), 2).state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        create((2, 3)).load_state_dict({})


@pytest.mark.parametrize(
    ("count", "told", "expected"),
    [
        (196, {}, (0, 14, 14)),
        (197, {}, (1, 14, 14)),
        (198, {"num_prefix_tokens": 2}, (2, 14, 14)),
        (16, {}, (0, 4, 4)),
        (17, {}, (1, 4, 4)),
        (1, {}, (0, 1, 1)),
        (16, {"grid_size": (2, 8)}, (0, 2, 8)),
        (17, {"grid_size": (2, 8)}, (1, 2, 8)),
        (17, {"grid_size": (2, 8), "num_prefix_tokens": 1}, (1, 2, 8)),
    ],
)
def test_prefix_and_grid_are_found_where_there_is_one_way(count: int, told: dict, expected: tuple) -> None:
    positions = torch.arange(2.0 * count).reshape(1, count, 2)
    prefix, grid = split_positions(positions, **told)
    assert (prefix.shape[1], *grid.shape[1:3]) == expected
    assert torch.equal(torch.cat([prefix, grid.flatten(1, 2)], 1), positions)


@pytest.mark.parametrize(
    ("count", "told", "message"),
    [
        (195, {}, "195 positions are, in no way, a square grid"),
        (198, {}, "198 positions are, in no way"),
        (197, {"num_prefix_tokens": 0}, "197 positions are, in no way"),
        (16, {"grid_size": (3, 6)}, "16 positions are not those of"),
        (17, {"grid_size": (2, 8), "num_prefix_tokens": 0}, "17 positions are not those of"),
        (16, {"num_prefix_tokens": -1}, r"num_prefix_tokens \(-1\) must be"),
    ],
)
def test_counts_that_fit_no_grid_are_refused(count: int, told: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_positions(torch.zeros(1, count, 2), **told)
    with pytest.raises(ValueError, match=r"must be \(1, tokens, embed_dim\)"):
        split_positions(torch.zeros(count, 2), **told)


def test_tokens_and_grids_that_do_not_fit_are_refused() -> None:
    positions = create((2, 3))
    with pytest.raises(ValueError, match=r"must be \(batch, 7, 8\): 1 prefix tokens and a grid of 2 x 3"):
        positions(torch.zeros(1, 8, 8))
    with pytest.raises(ValueError, match=r"must be \(batch, 13, 8\): 1 prefix tokens and a grid of 3 x 4"):
        positions(torch.zeros(1, 7, 8), (3, 4))
    with pytest.raises(ValueError, match=r"must be \(batch, 7, 8\)"):
        positions(torch.zeros(1, 7, 6))
    with pytest.raises(ValueError, match=r"num_prefix_tokens \(-1\) must be"):
        create((2, 3), -1)


def test_halves_stay_halves() -> None:
    assert create((2, 3))(torch.zeros(1, 7, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16
