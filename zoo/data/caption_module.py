"""What every data set of captions offers: vocabulary, references, splits, loaders, and where the words are seen."""

import abc
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from zoo.data.augmentation import uniform_draws
from zoo.data.batches import Batch, derive_seed
from zoo.data.split_module import ImageSet, Split, SplitDataModule, abbreviate
from zoo.data.vocabulary import Vocabulary, split_words
from zoo.models.caption_words import PAD, UNKNOWN
from zoo.preprocessing import Preprocessing


class CaptionBatch(NamedTuple):
    """What a captioner learns from.

    Attributes:
        images: float32 (batch, channels, height, width), normalised.
        words: int64 (batch, max_words + 2): start, words, end, filling.
        indices: int64 (batch,), the position of each image in its split.
    """

    images: Tensor
    words: Tensor
    indices: Tensor


class WordRegions(NamedTuple):
    """Where in the image the things are that the words of a caption, the first of each image, speak of.

    Attributes:
        boxes: float32 (images, objects, 4): left, top, right, bottom as fractions of width and height; no two of an
            image overlap.
        speaks_of: bool (images, max_words, objects): whether a word speaks of an object.
    """

    boxes: Tensor
    speaks_of: Tensor


class CaptionedImages(NamedTuple):
    """One split as it was read: images, the captions of each, and the regions of the first caption's words."""

    images: ImageSet
    captions: list[list[str]]
    regions: WordRegions | None = None


class CaptionDataModule(SplitDataModule):
    """Images with one caption or more each, in splits.

    The vocabulary is collected from the training captions alone, or is the one that a weight card demands; other words
    become ``<unknown>``. With several captions of an image, each epoch learns from one, drawn for that image and
    epoch; validation learns of the likelihood of the first, and a written caption is right when it is one of them.

    Args:
        name: Registered name.
        preprocessing: What evaluation does to an image.
        max_words: Longest caption; words past it are cut off.
        min_word_count: How often a word must occur in the training captions to be in the vocabulary.
        batch_size: Training images per step and process; a last batch that is not full is left out.
        eval_batch_size: Images of other splits per step and process.
        shuffle_seed: Seed of the order, and of the caption that is drawn.
        demanded_words: The vocabulary, as a weight card gives it.
    """

    def __init__(
        self,
        *,
        name: str,
        preprocessing: Preprocessing,
        max_words: int,
        min_word_count: int,
        batch_size: int,
        eval_batch_size: int,
        shuffle_seed: int,
        demanded_words: Sequence[str] | None,
    ) -> None:
        super().__init__(
            name=name,
            preprocessing=preprocessing,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
        )
        if max_words < 1 or min_word_count < 1:
            raise ValueError(f"max_words ({max_words}) and min_word_count ({min_word_count}) must be at least 1")
        self.max_words = max_words
        self._min_word_count = min_word_count
        self._demanded = None if demanded_words is None else Vocabulary(demanded_words)
        self._vocabulary: Vocabulary | None = self._demanded
        self._captioned: dict[Split, CaptionedImages] | None = None
        self._references: dict[Split, list[list[list[str]]]] = {}

    @abc.abstractmethod
    def read_splits(self) -> dict[Split, CaptionedImages]:
        """Read the splits: training, validation and test, and ``held_out`` where there is one."""

    @abc.abstractmethod
    def describe_source(self) -> list[str]:
        """Say, one sentence per line, where images and captions come from and how they were split."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that can be read and written."""
        if self._vocabulary is None:
            self._read()
        assert self._vocabulary is not None
        return self._vocabulary

    @override
    def output_names(self) -> tuple[str, ...]:
        return self.vocabulary.words

    @property
    def num_classes(self) -> int:
        """Words of the vocabulary, the special ones counted: the number of logits of a captioner."""
        return len(self.vocabulary)

    def _read(self) -> dict[Split, CaptionedImages]:
        if self._captioned is None:
            captioned = self.read_splits()
            if self._vocabulary is None:
                training = (caption for captions in captioned["train"].captions for caption in captions)
                self._vocabulary = Vocabulary.of_captions(training, min_count=self._min_word_count)
            for split in captioned.values():
                split.images.labels = self._encode(split.captions)
            self._captioned = captioned
        return self._captioned

    @override
    def _sets(self) -> dict[Split, ImageSet]:
        return {split: captioned.images for split, captioned in self._read().items()}

    def _encode(self, captions: Sequence[Sequence[str]]) -> Tensor:
        """Return int64 (images, captions per image, max_words + 2); where an image has fewer, rows of filling."""
        most = max((len(each) for each in captions), default=1)
        encoded = torch.full((len(captions), most, self.max_words + 2), PAD)
        for image, each in enumerate(captions):
            rows = [self.vocabulary.encode(split_words(caption), max_words=self.max_words) for caption in each]
            encoded[image, : len(rows)] = torch.tensor(rows)
        return encoded

    def check(self) -> None:
        """Check before training that every image has a caption, and that there are words and images enough.

        Raises:
            ValueError: An image without a caption, a split without images, too few images for one batch, or no word in
                the vocabulary.
        """
        self.check_sizes()
        for split, captioned in self._read().items():
            for index, captions in enumerate(captioned.captions):
                if not any(split_words(caption) for caption in captions):
                    raise ValueError(f"{captioned.images.sample_name(index)} ({split}) has no caption with a word")
        if self.num_classes == len(Vocabulary.of_captions([])):
            raise ValueError(f"no word occurs {self._min_word_count} times in the training captions")

    def references(self, split: Split) -> list[list[list[str]]]:
        """Return the words of every caption of every image, cut to ``max_words``, words not in the vocabulary kept."""
        if split not in self._references:
            captions = self._read()[split].captions
            words = [[split_words(caption)[: self.max_words] for caption in each] for each in captions]
            self._references[split] = words
        return self._references[split]

    def regions(self, split: Split) -> WordRegions | None:
        """Return where the words of the first captions are in the images, or ``None`` where nobody knows."""
        return self._read()[split].regions

    def share_of_unknown_words(self, split: Split) -> float:
        """Return the share of the words of a split's captions that are not in the vocabulary."""
        words = self._sets()[split].labels
        return float((words == UNKNOWN).sum() / (words >= UNKNOWN).sum().clamp_min(1))

    @override
    def prepare_batch(self, batch: Batch, training: bool) -> CaptionBatch:
        """Normalise the images, and choose one caption of each: in training drawn by lot, else the first."""
        images = self.preprocessing.normalize(batch.images)
        references = batch.labels
        chosen = torch.zeros(len(references), dtype=torch.int64, device=references.device)
        if training and references.shape[1] > 1:
            draws = uniform_draws(batch.indices, 1, derive_seed("caption", self.shuffle_seed, self.train_epoch))
            counts = (references[:, :, 0] != PAD).sum(dim=1)
            chosen = (draws[:, 0] * counts).long()
        words = references[torch.arange(len(references), device=references.device), chosen]
        return CaptionBatch(images, words, batch.indices)

    def digest(self) -> str:
        """Return the sha256 of what a run learns from and is judged by: splits, captions and images."""
        digest = hashlib.sha256("\0".join(self.vocabulary.words).encode())
        for split, captioned in self._read().items():
            captions = "\n".join("\t".join(each) for each in captioned.captions)
            names = "\0".join(self.sample_names(split))
            digest.update(f"\n{split}\n{names}\n{captions}\n{captioned.images.content_digest()}".encode())
        return digest.hexdigest()

    def describe(self) -> str:
        """Return a readable text: source, vocabulary, splits, and what is done to the images."""
        unknown = ", ".join(
            f"{100 * self.share_of_unknown_words(split):.2f} % of {self.stage_of_split[split]}" for split in self.splits
        )
        source = "demanded by the weights" if self._demanded else "of the training captions"
        lines = [f"{self.name}: {self.describe_counts()} images with captions of at most {self.max_words} words"]
        lines += self.describe_source()
        lines.append(f"Vocabulary, {source}: {self.num_classes} words, {abbreviate(self.vocabulary.words)}.")
        lines.append(f"Words that are not in it: {unknown} captions.")
        lines.append(f"Every image: {self.preprocessing.describe()}.")
        return "\n".join(lines)
