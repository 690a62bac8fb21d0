import pytest
import torch
from torch.nn import functional

from zoo.data.augmentation import CropFlipCutout, uniform_draws


def numbered_images(count=6, channels=3, height=5, width=7):
    return torch.arange(count * channels * height * width).view(count, channels, height, width)


def draws_for(vertical=0.5, horizontal=0.5, flip=0.9, row=0.5, column=0.5, count=6):
    return torch.tensor([[vertical, horizontal, flip, row, column]]).expand(count, 5)


def test_draws_are_uniform_and_uncorrelated():
    draws = uniform_draws(torch.arange(20_000), 5, seed=3)
    assert draws.shape == (20_000, 5)
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = torch.stack([torch.histc(column, 16, 0, 1) for column in draws.T])
    chi_squared = ((counts - 1250) ** 2 / 1250).sum(1)
    assert chi_squared.max() < 45  # 15 degrees of freedom: one in 10,000
    correlation = torch.corrcoef(torch.cat([draws[:-1].T, draws[1:].T])).fill_diagonal_(0)
    assert correlation.abs().max() < 0.03


def test_draws_of_an_image_do_not_depend_on_its_batch():
    whole = uniform_draws(torch.arange(10), 5, seed=3)
    assert torch.equal(uniform_draws(torch.tensor([7, 2]), 5, seed=3), whole[[7, 2]])
    assert not torch.equal(uniform_draws(torch.arange(10), 5, seed=4), whole)


def test_draws_are_pinned_on_every_machine():
    first = (uniform_draws(torch.arange(2), 2, seed=0) * 2**24).long()

    # SplitMix64 started at 0 and 1, by its definition in whole numbers.
    def mix(counter):
        bits = counter * 0x9E3779B97F4A7C15 % 2**64
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        return (bits ^ bits >> 31) >> 40

    assert first.flatten().tolist() == [mix(counter) for counter in range(4)]


@pytest.mark.parametrize("mode", ["reflect", "constant"])
def test_shift_is_padding_and_cropping(mode):
    images = numbered_images().float()
    padded = functional.pad(images, (2, 2, 2, 2), mode=mode)
    augmentation = CropFlipCutout(crop_padding=2, padding_mode=mode, horizontal_flip=False)
    for down in range(5):
        for right in range(5):
            moved = augmentation.move(images, draws_for(vertical=(down + 0.5) / 5, horizontal=(right + 0.5) / 5))
            assert torch.equal(moved, padded[:, :, down : down + 5, right : right + 7])


def test_flip_mirrors_left_to_right_below_one_half():
    images = numbered_images()
    augmentation = CropFlipCutout(crop_padding=0)
    assert torch.equal(augmentation.move(images, draws_for(flip=0.49)), images.flip(-1))
    assert torch.equal(augmentation.move(images, draws_for(flip=0.5)), images)


def test_flip_and_shift_together_differ_from_image_to_image():
    images = torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    augmentation = CropFlipCutout(crop_padding=1, padding_mode="constant")
    moved = augmentation.move(images, uniform_draws(torch.arange(64), 5, seed=0))
    padded = functional.pad(images, (1, 1, 1, 1))
    choices = [
        part.flip(-1) if flip else part
        for flip in (False, True)
        for top in range(3)
        for left in range(3)
        for part in [padded[:, :, top : top + 8, left : left + 8]]
    ]
    matches = torch.stack([(moved == choice).flatten(1).all(1) for choice in choices])
    assert matches.any(0).all()
    assert matches.any(1).sum() >= 15  # of 18 ways, over 64 images


def test_moved_images_keep_dtype_and_lie_channels_last():
    moved = CropFlipCutout().move(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), draws_for(count=2))
    assert moved.dtype == torch.uint8
    assert moved.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 4), (3, 9)])
def test_cutout_sets_a_square_to_the_mean(size, expected):
    images = torch.ones(6, 3, 5, 7)
    blanked = CropFlipCutout(cutout=size).blank(images, draws_for())
    assert (blanked[0, 0] == 0).sum() == expected
    assert blanked[0, 0, 2, 3] == 0
    assert torch.equal(blanked, blanked[:1, :1].expand_as(blanked))


def test_cutout_at_the_corner_is_cut_off():
    blanked = CropFlipCutout(cutout=4).blank(torch.ones(1, 1, 8, 8), draws_for(row=0, column=0.999, count=1))
    assert (blanked[0, 0, :2, 5:] == 0).all()
    assert (blanked == 0).sum() == 6


def test_nothing_asked_for_changes_nothing():
    augmentation = CropFlipCutout(crop_padding=0, horizontal_flip=False)
    images = numbered_images()
    assert torch.equal(augmentation.blank(augmentation.move(images, draws_for()), draws_for()), images)
    assert augmentation.describe() == "unchanged"


def test_description_names_every_part():
    assert CropFlipCutout(2, "constant", True, 8).describe() == (
        "shifted by up to 2 pixels (black border), mirrored half of the time, a 8 x 8 square set to the mean colour"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop_padding": -1}, r"crop_padding \(-1\)"),
        ({"cutout": -2}, r"cutout \(-2\)"),
        ({"padding_mode": "zeros"}, "'zeros' must be 'reflect' or 'constant'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CropFlipCutout(**options)


def test_shift_as_large_as_the_image_is_refused():
    with pytest.raises(ValueError, match=r"crop_padding \(5\) must be below the image size, 5 x 7"):
        CropFlipCutout(crop_padding=5).move(numbered_images(), draws_for())
