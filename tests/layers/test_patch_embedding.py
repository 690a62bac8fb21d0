"""Tokens of images: which pixels they see, in which order, and which images have none."""

import pytest
import torch

from zoo.layers.patch_embedding import ConvolutionalEmbedding, PatchEmbedding


def test_a_token_is_the_linear_map_of_its_patch_row_by_row() -> None:
    torch.manual_seed(0)
    embedding = PatchEmbedding(3, 5, patch_size=4)
    images = torch.randn(2, 3, 8, 12)
    tokens = embedding(images)
    matrix, bias = embedding.projection.weight.flatten(1), embedding.projection.bias
    for row in range(2):
        for column in range(3):
            patch = images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten(1)
            torch.testing.assert_close(tokens[:, 3 * row + column], patch @ matrix.T + bias)


def test_tokens_start_with_the_variance_of_the_pixels() -> None:
    torch.manual_seed(0)
    tokens = PatchEmbedding(3, 512, patch_size=4)(torch.randn(8, 3, 32, 32))
    assert tokens.std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (
            (33, 32),
            r"the image's height \(33\) must be a multiple of the patch size \(4\): crop it to 32 or scale it to 36",
        ),
        ((32, 2), r"the image's width \(2\) must be a multiple of the patch size \(4\): scale it to 4"),
    ],
)
def test_an_image_that_patches_do_not_cover_is_refused(size: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(3, 8, patch_size=4).grid_size(size)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("size", [(32, 32), (33, 47), (1, 2), (30, 17)])
def test_the_grid_of_the_convolutional_stem_is_what_it_returns(num_layers: int, size: tuple[int, int]) -> None:
    embedding = ConvolutionalEmbedding(3, 8, num_layers=num_layers, hidden_channels=4)
    rows, columns = embedding.grid_size(size)
    assert embedding(torch.randn(2, 3, *size)).shape == (2, rows * columns, 8)
    widths = [(layer.in_channels, layer.out_channels) for layer in embedding.layers if hasattr(layer, "in_channels")]
    assert widths == [(3, 8)] if num_layers == 1 else [(3, 4), *[(4, 4)] * (num_layers - 2), (4, 8)]


def test_a_token_of_the_stem_stands_where_its_pixels_stand() -> None:
    torch.manual_seed(0)
    embedding = ConvolutionalEmbedding(1, 4)
    dark, lit = torch.zeros(1, 1, 16, 24), torch.zeros(1, 1, 16, 24)
    lit[..., 10, 6] = 1
    changed = (embedding(lit) != embedding(dark)).any(-1).unflatten(1, (8, 12))[0]
    rows, columns = changed.nonzero(as_tuple=True)
    assert set(rows.tolist()) <= {4, 5, 6}
    assert set(columns.tolist()) <= {2, 3, 4}
    assert changed[5, 3]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PatchEmbedding(3, 8, patch_size=0), r"patch_size \(0\) must be an integer of at least 1"),
        (lambda: PatchEmbedding(0, 8, patch_size=4), r"in_channels \(0\)"),
        (lambda: ConvolutionalEmbedding(3, 0), r"embed_dim \(0\)"),
        (lambda: ConvolutionalEmbedding(3, 8, num_layers=0), r"num_layers \(0\)"),
        (lambda: ConvolutionalEmbedding(3, 8, num_layers=2, hidden_channels=1.5), r"hidden_channels \(1\.5\)"),
    ],
)
def test_arguments_out_of_range_are_refused(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
