import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as transforms

from zoo.data import image_files
from zoo.data.batches import BatchSampler
from zoo.data.image_files import FileLoader, ImageFiles, RandomCropFlip, check_images, default_num_workers, draw_box
from zoo.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(8, 8, mean=(0.5,) * 3, std=(0.25,) * 3, resize=9)


@pytest.fixture
def equal_files(tmp_path):
    """Eight files with the same picture, so that differences come from random draws alone."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    paths = [str(tmp_path / f"{number}.png") for number in range(8)]
    for path in paths:
        Image.fromarray(pixels).save(path)
    return paths


def make_loader(paths, *, num_workers, training=True, seed=0, keep_workers=True, timeout_s=60, batch_size=2):
    files = ImageFiles(paths, PREPROCESSING, RandomCropFlip() if training else None, seed)
    sampler = BatchSampler(len(paths), batch_size, shuffle=training, shuffle_seed=seed)
    labels = torch.arange(len(paths))
    return FileLoader(files, labels, sampler, num_workers=num_workers, keep_workers=keep_workers, timeout_s=timeout_s)


def epochs(loader, count=2):
    """Return the images of each epoch in the order of their indices."""
    images = []
    for epoch in range(count):
        loader.sampler.set_epoch(epoch)
        batches = list(loader)
        assert all(torch.equal(batch.labels, batch.indices) for batch in batches)
        order = torch.cat([batch.indices for batch in batches]).argsort()
        images.append(torch.cat([batch.images for batch in batches])[order])
    loader.close()
    return torch.stack(images)


def workers_of(iterator_or_loader):
    return list(iterator_or_loader._loader._iterator._workers)


def test_draws_differ_between_images_and_epochs_and_not_between_numbers_of_workers(equal_files):
    alone = epochs(make_loader(equal_files, num_workers=0))
    assert alone.shape == (2, 8, 3, 8, 8)
    assert alone.dtype == torch.uint8
    assert len(alone.flatten(0, 1).flatten(1).unique(dim=0)) == 16
    np.random.seed(1)
    torch.manual_seed(1)
    assert torch.equal(epochs(make_loader(equal_files, num_workers=0)), alone)
    assert not torch.equal(epochs(make_loader(equal_files, num_workers=0, seed=1)), alone)
    assert torch.equal(epochs(make_loader(equal_files, num_workers=2)), alone)
    assert torch.equal(epochs(make_loader(equal_files, num_workers=1, keep_workers=False)), alone)


def test_loading_leaves_the_global_generators_alone(equal_files):
    before = torch.get_rng_state()
    epochs(make_loader(equal_files, num_workers=0))
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_images_are_those_of_the_preprocessing(equal_files):
    loader = make_loader(equal_files, num_workers=0, training=False, batch_size=3)
    batches = list(loader)
    assert [len(batch.labels) for batch in batches] == [3, 3, 2]
    expected = PREPROCESSING.to_pixels(Image.open(equal_files[0]))
    assert all(torch.equal(image, expected) for batch in batches for image in batch.images)


def test_resumed_loader_hands_out_exactly_what_was_left(equal_files):
    whole = list(make_loader(equal_files, num_workers=0))
    broken_off, resumed = make_loader(equal_files, num_workers=0), make_loader(equal_files, num_workers=0)
    for batch, _ in zip(broken_off, range(2), strict=False):
        assert len(batch.labels) == 2
    resumed.load_state_dict(broken_off.state_dict() | {"batches": 1})
    rest = list(resumed)
    assert all(torch.equal(a.images, b.images) for a, b in zip(rest, whole[1:], strict=True))


def test_file_that_breaks_during_the_run_is_named(equal_files):
    Path(equal_files[5]).write_bytes(Path(equal_files[5]).read_bytes()[:200])
    for num_workers in (0, 1):
        loader = make_loader(equal_files, num_workers=num_workers, training=False)
        with pytest.raises(ValueError, match=r"5\.png: cannot be read as an image") as caught:
            list(loader)
        assert "Traceback" not in str(caught.value)
        loader.close()


@pytest.mark.parametrize("fate", ["stuck", "killed"])
def test_stuck_or_killed_worker_is_reported_in_time_and_leaves_no_process(equal_files, fate, monkeypatch):
    # Reading from a pipe that nobody writes to never ends.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)
    Path(equal_files[3]).unlink()
    os.mkfifo(equal_files[3])
    loader = make_loader(equal_files, num_workers=1, training=False, timeout_s=60)
    iterator = iter(loader)
    assert next(iterator).indices.tolist() == [0, 1]
    workers = workers_of(loader)
    if fate == "stuck":
        loader._timeout_s = 1
    else:
        os.kill(workers[0].pid, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"a worker process that decodes images died or gave no batch within \d+ s"):
        next(iterator)
    assert time.monotonic() - start < 30
    assert not any(worker.is_alive() for worker in workers)


def test_workers_end_when_the_loader_is_closed_or_an_evaluation_is_broken_off(equal_files):
    kept = make_loader(equal_files, num_workers=1)
    list(kept)
    workers = workers_of(kept)
    assert workers[0].is_alive()
    kept.close()
    assert not workers[0].is_alive()
    list(kept)  # it starts new ones
    kept.close()


ENDLESS_RUN = """
import sys, time
import torch
from zoo.data.batches import BatchSampler
from zoo.data.image_files import FileLoader, ImageFiles
from zoo.preprocessing import Preprocessing

files = ImageFiles(sys.argv[1:], Preprocessing(8, 8, mean=(0.5,) * 3, std=(0.25,) * 3))
sampler = BatchSampler(8, 2, shuffle=False)
loader = FileLoader(files, torch.arange(8), sampler, num_workers=1, keep_workers=True, timeout_s=60)
next(iter(loader))
print(loader._loader._iterator._workers[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc, which Linux has")
def test_workers_end_when_the_run_is_killed(equal_files):
    with subprocess.Popen([sys.executable, "-c", ENDLESS_RUN, *equal_files], stdout=subprocess.PIPE, text=True) as run:
        worker = Path(f"/proc/{int(run.stdout.readline())}")
        assert worker.exists()
        run.kill()
        deadline = time.monotonic() + 20
        # A dead process stays in the list until its new parent has noticed.
        while worker.exists() and (worker / "stat").read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_workers_start_without_copying_the_threads_of_this_process():
    context = image_files.worker_context()
    assert context.get_start_method() in ("forkserver", "spawn")


@pytest.mark.parametrize(("ranks", "at_most"), [("1", 8), ("1000", 1)])
def test_default_number_of_workers_is_shared_by_local_ranks(monkeypatch, ranks, at_most):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert 1 <= default_num_workers() <= at_most


# The check before the first epoch


def test_check_finds_every_file_that_cannot_be_decoded(equal_files, tmp_path):
    Path(equal_files[2]).write_bytes(b"")
    Path(equal_files[6]).write_bytes(Path(equal_files[6]).read_bytes()[:200])
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    facts = check_images([*equal_files, str(tmp_path / "moving.gif")], channels=3, num_threads=2)
    assert [index for index, fact in enumerate(facts) if fact.error is not None] == [2, 6]
    assert "2.png" in facts[2].error
    assert facts[8].frames == 2


def test_check_reads_again_only_what_changed(equal_files, monkeypatch):
    read = []

    def count(path, channels):
        read.append(path)
        return 1

    monkeypatch.setattr(image_files, "count_frames", count)
    check_images(equal_files, channels=3, num_threads=1)
    assert sorted(read) == equal_files
    check_images(equal_files, channels=3, num_threads=1)
    assert len(read) == 8
    os.utime(equal_files[4], (1, 1))
    check_images(equal_files, channels=3, num_threads=1)
    assert read[8:] == [equal_files[4]]


# Random crops


def test_drawn_boxes_lie_inside_and_keep_area_and_shape():
    generator = np.random.default_rng(0)
    boxes = np.array([draw_box(200, 150, 0.25, generator) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 200
    assert boxes[:, 3].max() <= 150
    area, shape = width * height / 30_000, width / height
    assert 0.24 < area.min() < 0.28
    assert area.max() > 0.9
    assert 0.73 < shape.min() < 0.78
    assert 1.3 < shape.max() < 1.36


@pytest.mark.parametrize(("size", "box"), [((1, 4000), (0, 1999, 1, 2000)), ((4000, 3), (1998, 0, 2002, 3))])
def test_image_too_long_for_any_draw_gives_its_centre(size, box):
    left, top, right, bottom = draw_box(*size, 0.5, np.random.default_rng(0))
    assert abs(left - box[0]) <= 1
    assert abs(top - box[1]) <= 1
    assert (right - left, bottom - top) == (box[2] - box[0], box[3] - box[1])


def test_smallest_crop_of_one_cuts_as_in_evaluation():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    plain = PREPROCESSING.to_pixels(image)
    augmentation = RandomCropFlip(smallest_crop=1)
    results = [augmentation(image, PREPROCESSING, np.random.default_rng(seed)) for seed in range(10)]
    mirrored = [torch.equal(result, plain.flip(-1)) for result in results]
    assert all(mirror or torch.equal(result, plain) for mirror, result in zip(mirrored, results, strict=True))
    assert 0 < sum(mirrored) < 10
    assert torch.equal(RandomCropFlip(1, False)(image, PREPROCESSING, np.random.default_rng(0)), plain)


def test_crop_is_the_part_scaled_to_the_input_size():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    box = draw_box(30, 20, 0.3, np.random.default_rng(5))
    expected = transforms.pil_to_tensor(image.crop(box).resize((8, 8), Image.Resampling.BILINEAR)).int()
    result = RandomCropFlip(0.3, False)(image, PREPROCESSING, np.random.default_rng(5)).int()
    # Scaling a part sees the pixels just outside it, cropping first does not.
    assert (result - expected).abs()[:, 1:-1, 1:-1].max() <= 1


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_smallest_crop_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"smallest_crop \(.*\) must be above 0"):
        RandomCropFlip(smallest_crop=share)


def test_description_names_every_part():
    assert RandomCropFlip(1, False).describe() == "unchanged"
    assert RandomCropFlip(0.25, True).describe() == (
        "instead of the centre a random part of at least 25% of the area, mirrored half of the time"
    )
