"""The contract of data with captions: vocabulary, several references, unknown words, resuming."""

import pytest
import torch
from typing_extensions import override

from zoo.data.caption_module import CaptionDataModule, CaptionedImages
from zoo.data.split_module import TensorSet
from zoo.models.caption_words import PAD, UNKNOWN
from zoo.preprocessing import Preprocessing

TRAIN = [["a dog", "the dog runs"], ["a cat"], ["a dog", "one dog", "dog"], ["cat cat"]]


class Toy(CaptionDataModule):
    """Noise with the captions given."""

    def __init__(self, train=TRAIN, val=(("a fish",),), *, words=None, max_words=3, min_word_count=1, seed=0, batch=2):
        self._train, self._val = train, [list(each) for each in val]
        super().__init__(
            name="toy",
            preprocessing=Preprocessing(8, 8, mean=(0.5,) * 3, std=(0.25,) * 3),
            max_words=max_words,
            min_word_count=min_word_count,
            batch_size=batch,
            eval_batch_size=3,
            shuffle_seed=seed,
            demanded_words=words,
        )

    @override
    def read_splits(self):
        def make(split, captions):
            images = torch.zeros(len(captions), 8, 8, 3, dtype=torch.uint8)
            return CaptionedImages(TensorSet(images, torch.zeros(len(captions)), split), captions)

        return {"train": make("train", self._train), "val": make("val", self._val), "test": make("test", self._val)}

    @override
    def describe_source(self):
        return ["Noise."]


def drawn(data, epoch):
    """The caption of each training image in an epoch."""
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return {
        int(index): tuple(data.vocabulary.decode(words))
        for batch in loader
        for index, words in zip(batch.indices, data.prepare_batch(batch, training=True).words.tolist(), strict=True)
    }


def test_the_vocabulary_is_that_of_the_training_captions_and_other_words_are_unknown():
    data = Toy()
    assert set(data.output_names()[4:]) == {"a", "dog", "the", "runs", "cat", "one"}
    assert data.num_classes == 10
    batch = data.prepare_batch(next(iter(data.val_dataloader())), training=False)
    assert batch.words[0].tolist()[2] == UNKNOWN
    assert data.share_of_unknown_words("val") == 0.5
    assert data.share_of_unknown_words("train") == 0
    assert "50.00 % of validation" in data.describe()
    assert data.references("val") == [[["a", "fish"]]]


def test_rare_words_are_left_out_and_none_at_all_is_an_error():
    assert set(Toy(min_word_count=3).output_names()[4:]) == {"a", "dog", "cat"}
    with pytest.raises(ValueError, match="no word occurs 9 times"):
        Toy(min_word_count=9).check()


def test_weights_can_demand_their_vocabulary():
    words = (*Toy().output_names()[:4], "fish", "a")
    data = Toy(words=words)
    assert data.output_names() == words
    assert data.share_of_unknown_words("val") == 0
    assert data.prepare_batch(next(iter(data.val_dataloader())), training=False).words[0].tolist() == [1, 5, 4, 2, 0]


def test_each_epoch_learns_from_a_caption_that_is_drawn_and_validation_from_the_first():
    data = Toy()
    seen = {index: set() for index in range(4)}
    for epoch in range(30):
        for index, words in drawn(data, epoch).items():
            seen[index].add(" ".join(words))
    assert [seen[index] for index in range(4)] == [set(captions) for captions in TRAIN]
    assert drawn(Toy(), 3) == drawn(Toy(), 3)
    assert any(drawn(Toy(), epoch) != drawn(Toy(seed=1), epoch) for epoch in range(5))
    first = data.prepare_batch(next(iter(data.create_loader("train"))), training=False)
    words = [" ".join(data.vocabulary.decode(row)) for row in first.words.tolist()]
    assert words == [TRAIN[index][0] for index in first.indices.tolist()]


def test_captions_of_an_image_with_fewer_are_filled_with_rows_that_are_never_drawn():
    labels = Toy()._sets()["train"].labels
    assert labels.shape == (4, 3, 5)
    assert labels[1, 1:].eq(PAD).all()


def test_long_captions_are_cut_in_references_too():
    data = Toy(max_words=2)
    assert data.references("train")[0] == [["a", "dog"], ["the", "dog"]]


def test_an_image_without_a_word_is_named():
    with pytest.raises(ValueError, match=r"train/00001 \(train\) has no caption with a word"):
        Toy(train=[["a"], ["!"], ["b"]]).check()


def test_a_split_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"toy has no split 'held_out'; it has train, val, test"):
        Toy().create_loader("held_out")


@pytest.mark.parametrize("wrong", [{"max_words": 0}, {"min_word_count": 0}, {"batch": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must be at least 1"):
        Toy(**wrong)


def test_the_digest_depends_on_captions():
    assert Toy().digest() == Toy(seed=3).digest()
    assert Toy().digest() != Toy(val=[["a bird"]]).digest()
