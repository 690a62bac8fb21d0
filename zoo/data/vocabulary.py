"""Captions as numbers: words cut from text, a vocabulary of them, and back."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from zoo.models.caption_words import END, PAD, SPECIAL_WORDS, START, UNKNOWN

_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")


def split_words(caption: str) -> list[str]:
    """Cut a caption into words in lower case; punctuation is left out.

    >>> split_words("A dog's ball, 2 metres away.")
    ['a', "dog's", 'ball', '2', 'metres', 'away']
    """
    return _WORD.findall(caption.lower())


class Vocabulary:
    """The words a captioner can write, each with its number; the first four are special.

    Args:
        words: All words in the order of their numbers, the special ones first.

    Raises:
        ValueError: The special words do not stand first, or a word occurs twice.

    >>> vocabulary = Vocabulary.of_captions(["a red ring", "a ring"])
    >>> vocabulary.words
    ('<pad>', '<start>', '<end>', '<unknown>', 'a', 'ring', 'red')
    >>> vocabulary.encode(["a", "blue", "ring"], max_words=4)
    [1, 4, 3, 5, 2, 0]
    >>> vocabulary.decode([1, 4, 3, 5, 2, 0])
    ['a', '<unknown>', 'ring']
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if self.words[: len(SPECIAL_WORDS)] != SPECIAL_WORDS:
            raise ValueError(f"a vocabulary begins with {', '.join(SPECIAL_WORDS)}, not with {self.words[:4]}")
        self._numbers = {word: number for number, word in enumerate(self.words)}
        if len(self._numbers) != len(self.words):
            repeated = [word for word, count in Counter(self.words).items() if count > 1]
            raise ValueError(f"the words of a vocabulary must differ; repeated: {', '.join(repeated)}")

    @classmethod
    def of_captions(cls, captions: Iterable[str], *, min_count: int = 1) -> "Vocabulary":
        """Collect the words that occur at least ``min_count`` times, the most frequent first, equals by alphabet."""
        counts = Counter(word for caption in captions for word in split_words(caption))
        ordered = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls([*SPECIAL_WORDS, *(word for _, word in ordered)])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def encode(self, words: Sequence[str], *, max_words: int) -> list[int]:
        """Return ``max_words + 2`` numbers: the start, the words, the end, filling; words past ``max_words`` are lost.

        A word that is not in the vocabulary becomes ``<unknown>``.
        """
        numbers = [self._numbers.get(word, UNKNOWN) for word in words[:max_words]]
        return [START, *numbers, END, *[PAD] * (max_words - len(numbers))]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Return the words up to the end; the start is left out."""
        words = []
        for number in numbers:
            if number in (END, PAD):
                break
            if number != START:
                words.append(self.words[number])
        return words
