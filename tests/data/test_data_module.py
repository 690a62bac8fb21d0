import itertools

import lightning
import pytest
import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from zoo.data.augmentation import CropFlipCutout
from zoo.data.data_module import ImageDataModule, TensorSet, abbreviate
from zoo.preprocessing import Preprocessing

# Lightning 2.6 uses a name that torch 2.14 deprecates, and advises on sizes that do not matter here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The number of training batches:UserWarning"),
]

CLASSES = ["cat", "dog", "owl"]


class Toy(ImageDataModule):
    """36 training, 10 validation and 10 test images of noise in memory."""

    def __init__(self, *, labels=None, batch_size=4, class_names=None, seed=0, sizes=(36, 10, 10)):
        self._sizes = sizes
        self._labels = labels or {}
        super().__init__(
            name="toy",
            class_names=CLASSES,
            preprocessing=Preprocessing(8, 8, mean=(0.5,) * 3, std=(0.25,) * 3),
            batch_size=batch_size,
            eval_batch_size=3,
            shuffle_seed=seed,
            demanded_class_names=class_names,
            augmentation=CropFlipCutout(crop_padding=2, cutout=3),
        )

    @override
    def read_splits(self):
        generator = torch.Generator().manual_seed(0)
        sets = {}
        for split, size in zip(("train", "val", "test"), self._sizes, strict=True):
            images = torch.randint(0, 256, (size, 8, 8, 3), dtype=torch.uint8, generator=generator)
            sets[split] = TensorSet(images, self._labels.get(split, torch.arange(size) % 3), split)
        return sets

    @override
    def describe_source(self):
        return ["Noise."]


class Net(lightning.LightningModule):
    """Remembers what it was shown."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 3)
        self.shown = {"train": [], "val": [], "test": []}

    def training_step(self, batch, _):
        self.shown["train"].append((self.current_epoch, batch.indices.tolist(), batch.images.clone()))
        return functional.cross_entropy(self.layer(batch.images.flatten(1)), batch.labels)

    def validation_step(self, batch, _):
        self.shown["val"].append((self.current_epoch, batch.indices.tolist(), batch.images.clone()))

    def test_step(self, batch, batch_idx):
        self.shown["test"].append((self.current_epoch, batch.indices.tolist(), batch.images.clone()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def trainer(tmp_path, **options):
    defaults = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    defaults |= {"enable_model_summary": False, "use_distributed_sampler": False, "enable_checkpointing": False}
    return lightning.Trainer(default_root_dir=tmp_path, **defaults | options)


def test_lightning_shows_augmented_training_and_plain_evaluation_images(tmp_path):
    data, net = Toy(), Net()
    run = trainer(tmp_path)
    run.fit(net, datamodule=data)
    run.test(net, datamodule=data, verbose=False)
    orders = {epoch: [indices for e, indices, _ in net.shown["train"] if e == epoch] for epoch in (0, 1)}
    assert all(sorted(itertools.chain(*order)) == list(range(36)) for order in orders.values())
    assert orders[0] != orders[1]
    plain = data.preprocessing.normalize(data._sets()["train"].images.permute(0, 3, 1, 2))
    changed = [not torch.equal(images, plain[indices]) for _, indices, images in net.shown["train"]]
    assert all(changed)
    for split in ("val", "test"):
        expected = data.preprocessing.normalize(data._sets()[split].images.permute(0, 3, 1, 2))
        assert all(torch.equal(images, expected[indices]) for _, indices, images in net.shown[split])
    assert list(itertools.chain(*(indices for _, indices, _ in net.shown["test"]))) == list(range(10))


@pytest.mark.parametrize("steps", [4, 9, 13])
def test_run_resumed_from_a_checkpoint_of_any_step_shows_the_same_images(tmp_path, steps):
    def save(run, *_):
        if run.global_step == steps:
            run.save_checkpoint(tmp_path / "middle.ckpt", weights_only=False)

    saving = lightning.pytorch.callbacks.LambdaCallback(on_train_batch_end=save)
    whole, resumed = Net(), Net()
    trainer(tmp_path, callbacks=[saving]).fit(whole, datamodule=Toy())
    trainer(tmp_path).fit(resumed, datamodule=Toy(), ckpt_path=tmp_path / "middle.ckpt", weights_only=True)

    expected = whole.shown["train"][steps:]
    assert len(resumed.shown["train"]) == len(expected) == 18 - steps
    for (_, indices, images), (_, expected_indices, expected_images) in zip(
        resumed.shown["train"], expected, strict=True
    ):
        assert indices == expected_indices
        assert torch.equal(images, expected_images)
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name])


def test_augmentation_depends_on_seed_epoch_and_image_and_on_nothing_else():
    data = Toy()
    loader = data.train_dataloader()
    batch = next(iter(loader))
    images = data.prepare_batch(batch, training=True).images
    before = torch.get_rng_state()
    assert torch.equal(data.prepare_batch(batch, training=True).images, images)
    assert torch.equal(torch.get_rng_state(), before)
    reversed_batch = type(batch)(*(part.flip(0) for part in batch))
    assert torch.equal(data.prepare_batch(reversed_batch, training=True).images, images.flip(0))
    other = Toy(seed=1)
    other.train_dataloader()
    assert not torch.equal(other.prepare_batch(batch, training=True).images, images)
    loader.sampler.set_epoch(1)
    assert not torch.equal(data.prepare_batch(batch, training=True).images, images)


def test_evaluation_in_shards_counts_every_image_once():
    data = Toy()
    for world in (1, 2, 3, 4):
        loaders = [data.create_loader("test", shard=(rank, world)) for rank in range(world)]
        assert sorted(int(index) for loader in loaders for batch in loader for index in batch.indices) == list(
            range(10)
        )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"val": torch.tensor([0, 1, 2] * 3 + [3])}, r"validation image val/00009 has label 3, labels must be 0\.\.2"),
        ({"train": torch.arange(36) % 3 + 1}, r"training image train/00002 has label 3"),
        ({"test": torch.tensor([0] * 9 + [-1])}, r"test image test/00009 has label -1"),
        ({"train": (torch.arange(36) % 3).float()}, r"training labels must be int64"),
    ],
)
def test_wrong_labels_are_found_before_training_in_any_split(labels, message):
    for use in (Toy.check, Toy.setup, Toy.train_dataloader):
        with pytest.raises(ValueError, match=message):
            use(Toy(labels=labels))


@pytest.mark.parametrize("outputs", [2, 4])
def test_net_with_another_number_of_outputs_is_refused_with_the_class_names(outputs):
    Toy().check(num_classes=3)
    with pytest.raises(ValueError, match=f"the net has {outputs} outputs, toy has 3 classes: cat, dog, owl"):
        Toy().check(num_classes=outputs)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 10, 10), "3 training images do not fill one batch of 4"),
        ((36, 0, 10), "toy has no validation images"),
        ((36, 10, 0), "toy has no test images"),
        ((0, 10, 10), "toy has no training images"),
    ],
)
def test_too_few_images_are_found_before_training(sizes, message):
    with pytest.raises(ValueError, match=message):
        Toy(sizes=sizes).check()


def test_no_training_happens_on_fewer_images_than_a_batch(tmp_path):
    run = trainer(tmp_path)
    with pytest.raises(ValueError, match="3 training images do not fill one batch of 4"):
        run.fit(Net(), datamodule=Toy(sizes=(3, 10, 10)))
    assert run.global_step == 0


def test_demanded_classes_move_the_labels_by_name():
    plain, moved = Toy(), Toy(class_names=["owl", "fox", "cat", "dog"])
    assert moved.num_classes == 4
    for split in ("train", "val", "test"):
        names = [[data.class_names[label] for label in data.labels(split).tolist()] for data in (plain, moved)]
        assert names[0] == names[1]
    assert "cat -> 2, dog -> 3, owl -> 0" in moved.describe()
    assert "demanded" not in plain.describe()


def test_names_and_counts_belong_to_each_split():
    data = Toy()
    assert (data.num_train, data.num_val, data.num_test) == (36, 10, 10)
    assert data.sample_names("val") == [f"val/{number:05d}" for number in range(10)]
    assert data.describe().splitlines()[:2] == ["toy: 3 classes, 36 training, 10 validation, 10 test images", "Noise."]


def test_digest_changes_with_a_pixel_a_label_and_a_split_and_not_with_the_seed():
    digest = Toy().digest()
    assert Toy(seed=5, batch_size=2).digest() == digest
    assert Toy(sizes=(37, 10, 10)).digest() != digest
    assert Toy(class_names=["owl", "cat", "dog"]).digest() != digest
    pixel, label = Toy(), Toy()
    pixel._sets()["val"].images[3, 0, 0, 0] ^= 1
    label._sets()["test"].labels[0] = (label.labels("test")[0] + 1) % 3
    assert len({digest, pixel.digest(), label.digest()}) == 3


@pytest.mark.parametrize("option", ["batch_size", "eval_batch_size"])
def test_batch_sizes_below_one_are_refused(option):
    options = {"batch_size": 4, "eval_batch_size": 4} | {option: 0}

    class Bare(Toy):
        def __init__(self):
            preprocessing = Preprocessing(8, 8, mean=(0.5,) * 3, std=(0.25,) * 3)
            arguments = {"name": "bare", "class_names": CLASSES, "preprocessing": preprocessing, "shuffle_seed": 0}
            ImageDataModule.__init__(self, **arguments, **options)

    with pytest.raises(ValueError, match=rf"{option} \(0\)"):
        Bare()


def test_long_lists_of_names_are_abbreviated():
    assert abbreviate(["a"] * 20) == ", ".join(["a"] * 20)
    assert abbreviate(["a"] * 21).endswith("a, ... (21 in all)")
