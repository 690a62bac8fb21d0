import os
import shutil
import tarfile
import time

import numpy as np
import pytest
import torch
from torchvision import datasets
from torchvision.datasets.utils import calculate_md5

from zoo.data import cifar, create_data
from zoo.data.cifar import CIFAR10

needs_data = pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="ZOO_DATA is not set: needs the CIFAR-10 files")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def test_splits_hold_the_images_of_torchvision_each_once(cifar_root):
    data = create_data("cifar10", root=str(cifar_root), validation_fraction=0.2)
    theirs = CIFAR10._source(str(cifar_root), train=True)
    assert (data.num_train, data.num_val, data.num_test) == (160, 40, 20)
    names = data.sample_names("train") + data.sample_names("val")
    assert sorted(names) == [f"train/{number:05d}" for number in range(200)]
    loader = data.create_loader("val")
    for batch in loader:
        for image, label, index in zip(*batch, strict=True):
            number = int(names[data.num_train + int(index)].split("/")[1])
            np.testing.assert_array_equal(image.permute(1, 2, 0), theirs.data[number])
            assert label == theirs.targets[number]
    assert data.sample_names("test")[:2] == ["test/00000", "test/00001"]


def test_validation_split_is_stratified_and_the_same_for_every_seed(cifar_root):
    first, second = (create_data("cifar10", root=str(cifar_root), shuffle_seed=seed) for seed in (0, 1))
    assert first.labels("val").bincount().tolist() == [2] * 10
    assert first.sample_names("val") == second.sample_names("val")


def test_class_names_are_read_from_the_files(cifar_root):
    data = create_data("cifar10", root=str(cifar_root))
    assert data.class_names == tuple(f"class_{number}" for number in range(10))
    assert (data.num_classes, data.in_channels, data.image_size) == (10, 3, (32, 32))


def test_root_is_the_option_then_the_variable_then_data(cifar_root, monkeypatch):
    monkeypatch.setenv("ZOO_DATA", str(cifar_root))
    assert create_data("cifar10").num_test == 20
    with pytest.raises(ValueError, match="elsewhere/cifar-10-batches-py lacks"):
        create_data("cifar10", root="elsewhere")
    monkeypatch.delenv("ZOO_DATA")
    monkeypatch.chdir(cifar_root)
    with pytest.raises(ValueError, match="data/cifar-10-batches-py lacks"):
        create_data("cifar10")
    (cifar_root / "data").mkdir()
    shutil.move(cifar_root / "cifar-10-batches-py", cifar_root / "data")
    assert create_data("cifar10").num_test == 20


@pytest.mark.parametrize(("name", "archive"), [("cifar10", "cifar-10-python"), ("cifar100", "cifar-100-python")])
def test_missing_data_says_in_one_sentence_what_to_put_where(tmp_path, name, archive):
    with pytest.raises(ValueError, match="unpack") as caught:
        create_data(name, root=str(tmp_path))
    message = str(caught.value)
    assert "\n" not in message
    assert f"unpack {archive}.tar.gz from https://" in message
    assert f"into {tmp_path}" in message


def test_missing_batch_file_is_named(cifar_root):
    (cifar_root / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(ValueError, match="cifar-10-batches-py lacks data_batch_3: unpack"):
        create_data("cifar10", root=str(cifar_root))


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
@pytest.mark.parametrize("change", ["one byte", "cut off"])
def test_changed_file_is_named_with_both_sums_and_its_size(cifar_root, name, change):
    path = cifar_root / "cifar-10-batches-py" / name
    expected = calculate_md5(path)
    content = bytearray(path.read_bytes())
    if change == "one byte":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)
    message = f"{name} is damaged: expected MD5 {expected}, found {len(content)} bytes, MD5 {calculate_md5(path)}"
    with pytest.raises(ValueError, match=message):
        create_data("cifar10", root=str(cifar_root)).setup()


def test_truncated_archive_is_named_with_expected_and_found_size(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8b" + bytes(998))
    with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz is damaged: expected 170498071 bytes") as caught:
        create_data("cifar10", root=str(tmp_path))
    assert f"MD5 {datasets.CIFAR10.tgz_md5}, found 1000 bytes" in str(caught.value)


def pack(root):
    archive = root / CIFAR10._source.filename
    with tarfile.open(archive, "w:gz") as file:
        file.add(root / "cifar-10-batches-py", "cifar-10-batches-py")
    return archive


def test_whole_archive_that_was_not_unpacked_gives_the_command(cifar_root, monkeypatch):
    archive = pack(cifar_root)
    monkeypatch.setattr(CIFAR10._source, "tgz_md5", calculate_md5(archive))
    shutil.rmtree(cifar_root / "cifar-10-batches-py")
    with pytest.raises(ValueError, match=f"complete but not unpacked: run tar -xzf '{archive}' -C '{cifar_root}'"):
        create_data("cifar10", root=str(cifar_root))


@pytest.mark.parametrize("before", ["nothing", "damaged file", "whole"])
def test_download_on_demand_puts_only_whole_files_in_place(cifar_root, tmp_path_factory, monkeypatch, before):
    archive = pack(cifar_root).rename(tmp_path_factory.mktemp("server") / "archive.tar.gz")
    monkeypatch.setattr(CIFAR10._source, "tgz_md5", calculate_md5(archive))
    fetched = []

    def fetch(url, path, **kwargs):
        fetched.append(url)
        shutil.copy(archive, path)

    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", fetch)
    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, max_hops: url)
    if before == "nothing":
        shutil.rmtree(cifar_root / "cifar-10-batches-py")
    elif before == "damaged file":
        (cifar_root / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"half")
    data = create_data("cifar10", root=str(cifar_root), download=True)
    data.setup()
    assert len(fetched) == (0 if before == "whole" else 1)
    assert [path.name for path in cifar_root.iterdir()] == ["cifar-10-batches-py"]


def test_failed_download_says_what_to_do_and_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", refuse)
    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, max_hops: url)
    with pytest.raises(ValueError, match=r"cannot be downloaded \(no route to host\): unpack cifar-10-python\.tar\.gz"):
        create_data("cifar10", root=str(tmp_path), download=True)
    assert list(tmp_path.iterdir()) == []


def test_read_only_folder_is_read(cifar_root):
    folder = cifar_root / "cifar-10-batches-py"
    for path in [*folder.iterdir(), folder, cifar_root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert create_data("cifar10", root=str(cifar_root)).num_train == 180
        assert [path.name for path in cifar_root.iterdir()] == ["cifar-10-batches-py"]
    finally:
        for path in (cifar_root, folder):
            path.chmod(0o755)


def test_training_images_are_augmented_by_epoch_and_evaluation_images_never(cifar_root):
    data = create_data("cifar10", root=str(cifar_root), batch_size=20, cutout=8)
    loader = data.train_dataloader()
    batch = next(iter(loader))
    plain = data.prepare_batch(batch, training=False).images
    torch.testing.assert_close(plain, data.preprocessing.normalize(batch.images), rtol=0, atol=0)
    first = data.prepare_batch(batch, training=True).images
    assert first.shape == plain.shape
    assert not torch.equal(first, plain)
    assert torch.equal(first, data.prepare_batch(batch, training=True).images)
    assert ((first == 0).all(1).flatten(1).sum(1) >= 16).all()
    loader.sampler.set_epoch(1)
    assert not torch.equal(first, data.prepare_batch(batch, training=True).images)


def test_description_says_where_the_images_come_from_and_what_is_done(cifar_root):
    text = create_data("cifar10", root=str(cifar_root), cutout=4).describe()
    assert text.startswith("cifar10: 10 classes, 180 training, 20 validation, 20 test images\n")
    assert f"Read from {cifar_root / 'cifar-10-batches-py'}, MD5 sums checked." in text
    assert "Validation: 10% of each class of the training images" in text
    assert "shifted by up to 4 pixels (mirrored border), mirrored half of the time, a 4 x 4 square" in text


def test_sizes_of_both_archives_are_known():
    assert set(cifar._ARCHIVE_BYTES) == {datasets.CIFAR10.filename, datasets.CIFAR100.filename}


@needs_data
def test_real_cifar10_is_read_prepared_and_fast():
    data = create_data("cifar10")
    data.check(num_classes=10)
    assert (data.num_train, data.num_val, data.num_test) == (45_000, 5_000, 10_000)
    assert data.labels("val").bincount().tolist() == [500] * 10
    assert data.class_names[:3] == ("airplane", "automobile", "bird")
    times = []
    for batch, _ in zip(data.train_dataloader(), range(60), strict=False):
        start = time.thread_time()
        images = data.prepare_batch(batch, training=True).images
        times.append(time.thread_time() - start)
    assert images.shape == (128, 3, 32, 32)
    # A bound for busy machines: about 1.3 ms on one thread of an idle one, of a training step of about 50 ms.
    assert sorted(times)[len(times) // 2] < 0.01
