import hashlib
import time

import numpy as np
import pytest
import torch

from zoo.data import create_data
from zoo.data.cluttered_digits import draw_background, draw_colours, interpolation_weights, paint, split_sources

SMALL = {"num_images": 600}


def images_of(split="train", **options):
    data = create_data("cluttered_digits", **SMALL | options)
    loader = data.create_loader(split)
    return torch.cat([batch.images for batch in loader])


def test_splits_and_classes_are_as_asked_for():
    data = create_data("cluttered_digits", num_images=605, batch_size=100)
    data.check(num_classes=10)
    assert (data.num_train, data.num_val, data.num_test) == (405, 100, 100)
    assert data.class_names == tuple("0123456789")
    assert (data.in_channels, data.image_size) == (3, (32, 32))
    for split in ("train", "val", "test"):
        counts = data.labels(split).bincount()
        assert counts.max() - counts.min() <= 1


def test_splits_use_disjoint_real_digits_each_with_its_label():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    real = {
        (image / 16).astype(np.float32).tobytes(): label
        for image, label in zip(bunch.images, bunch.target, strict=True)
    }
    sources = split_sources()
    seen = [{digit.tobytes() for digit in digits} for digits, _ in sources.values()]
    assert set.union(*seen) == set(real)
    assert sum(len(part) for part in seen) == len(real)
    for digits, labels in sources.values():
        assert [real[digit.tobytes()] for digit in digits] == labels.tolist()
    assert [round(len(labels) / 1797, 2) for _, labels in sources.values()] == [0.67, 0.17, 0.17]


def test_images_are_pinned_on_every_machine():
    images = create_data("cluttered_digits", num_images=60)._sets()["test"].images
    assert (
        hashlib.sha256(images.numpy().tobytes()).hexdigest()
        == "437aebe569617d801a0108f0451ffd0c66e3a3113d57ba51c356fc5676b34544"
    )


def test_images_depend_on_the_seed_of_the_data_and_not_on_that_of_the_run():
    first = images_of("test")
    assert torch.equal(first, images_of("test", shuffle_seed=7))
    assert not torch.equal(first, images_of("test", seed=1))
    np.random.seed(3)
    assert torch.equal(first, images_of("test"))


def test_training_images_are_not_changed_further():
    data = create_data("cluttered_digits", **SMALL)
    batch = next(iter(data.train_dataloader()))
    training, evaluation = (data.prepare_batch(batch, training=training).images for training in (True, False))
    assert torch.equal(training, evaluation)
    assert "Training images: unchanged." in data.describe()


CLEAN = {"clutter": 0, "noise": 0.0}


def centres(images):
    """Return the centre of brightness of each image, relative to the middle, in pixels (vertical, horizontal)."""
    brightness = images.float().mean(1)
    brightness = (brightness - brightness.flatten(1).median(1).values.view(-1, 1, 1)).clamp(min=40) - 40
    weight = brightness.flatten(1).sum(1)
    positions = torch.arange(images.shape[-1]) - (images.shape[-1] - 1) / 2
    vertical = (brightness.sum(2) * positions).sum(1) / weight
    horizontal = (brightness.sum(1) * positions).sum(1) / weight
    return torch.stack([vertical, horizontal], 1)[weight > 0]


def test_position_jitter_goes_from_the_centre_to_anywhere():
    spread = {jitter: centres(images_of(position_jitter=jitter, image_size=64, **CLEAN)) for jitter in (0.0, 0.5, 1.0)}
    assert spread[0.0].abs().mean() < 3
    # Uniform over half of 64 - 20 pixels: 5.5 on average from the middle.
    assert 4.5 < spread[0.5].abs().mean() < 7
    # Uniform over 64 - 20 pixels: 11 on average from the middle.
    assert 9 < spread[1.0].abs().mean() < 15
    assert spread[1.0].abs().max() > 19
    assert spread[0.5].abs().max() < 0.75 * spread[1.0].abs().max() + 3


def test_clutter_noise_and_size_change_the_images():
    clean = images_of(**CLEAN).float()
    few, many = (images_of(clutter=clutter, noise=0.0).float() for clutter in (3, 4))
    assert (few - clean).abs().mean() > 5
    # The digit on top stays, and the fourth fragment changes at most its own place.
    assert 0.5 < (few == many).all(1).float().mean() < 1
    noisy = images_of(clutter=0, noise=0.3).float() - clean
    assert noisy.abs().max() <= 0.3 * 255 + 1
    assert 25 < noisy.abs().mean() < 45
    large = images_of(digit_size=30, **CLEAN).float()
    assert (large > 140).float().mean() > 1.3 * (clean > 140).float().mean()


def test_image_size_is_free():
    data = create_data("cluttered_digits", image_size=48, digit_size=40, **SMALL)
    batch = data.prepare_batch(next(iter(data.val_dataloader())), training=False)
    assert batch.images.shape[1:] == (3, 48, 48)
    assert data.image_size == (48, 48)


def test_digit_covers_the_place_and_the_colour_it_was_given():
    canvas = np.zeros((1, 3, 20, 20), dtype=np.float32)
    colour = np.array([[1.0, 0.5, 0.25]], dtype=np.float32)
    corner, side = np.array([[4, 6]], dtype=np.float32), np.array([[8, 8]], dtype=np.float32)
    paint(canvas, np.ones((1, 8, 8), dtype=np.float32), corner, side, colour)
    assert (canvas[0, :, 4:12, 6:14] == colour[0, :, None, None]).all()
    assert canvas[0, :, :3].max() == canvas[0, :, 13:].max() == canvas[0, :, :, :5].max() == 0


def test_weights_interpolate_between_cells_and_fade_outside():
    start, side = np.array([2.0], dtype=np.float32), np.array([16.0], dtype=np.float32)
    weights = interpolation_weights(20, 8, start, side)[:, 0].sum(0)
    np.testing.assert_allclose(weights[3:17], 1)
    assert weights[2] == weights[17] == 0.75
    assert weights[1] == weights[18] == 0.25
    assert weights[0] == weights[19] == 0


def test_digits_are_brighter_than_their_background():
    generator = np.random.default_rng(0)
    background = draw_background(500, 32, generator)
    assert 0 <= background.min() < 0.05
    assert 0.45 < background.max() <= 0.5
    colours = draw_colours(500, 0.6, 1, generator)
    assert 0.6 <= colours.min() < 0.61
    assert 0.99 < colours.max() <= 1


def test_ten_thousand_images_take_little_time():
    start = time.process_time()
    create_data("cluttered_digits", num_images=2_000).setup()
    # 5 s for 10,000 and twice that for busy machines.
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"digit_size": 7}, r"digit_size \(7\) must be from 8 to image_size \(32\)"),
        ({"digit_size": 33}, r"digit_size \(33\)"),
        ({"position_jitter": 1.1}, r"position_jitter \(1.1\)"),
        ({"noise": -0.1}, r"noise \(-0.1\)"),
        ({"clutter": -1}, r"clutter \(-1\)"),
        ({"seed": -1}, r"seed \(-1\)"),
        ({"num_images": 59}, r"num_images \(59\) must be at least 60"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        create_data("cluttered_digits", **options)
