"""Words as numbers."""

import pytest

from zoo.data.vocabulary import Vocabulary, split_words
from zoo.models.caption_words import END, PAD, SPECIAL_WORDS, START, UNKNOWN


def test_special_words_stand_first_under_the_numbers_that_models_know():
    vocabulary = Vocabulary.of_captions(["b a", "a"])
    assert vocabulary.words == (*SPECIAL_WORDS, "a", "b")
    assert [vocabulary.words[number] for number in (PAD, START, END, UNKNOWN)] == list(SPECIAL_WORDS)


def test_rare_words_are_unknown_and_equals_stand_by_alphabet():
    vocabulary = Vocabulary.of_captions(["dog cat dog", "ant cat"], min_count=2)
    assert vocabulary.words[4:] == ("cat", "dog")
    assert vocabulary.encode(["dog", "ant"], max_words=2) == [START, 5, UNKNOWN, END]


def test_long_captions_are_cut_and_still_end():
    vocabulary = Vocabulary.of_captions(["a b c"])
    assert vocabulary.encode(["a", "b", "c"], max_words=2) == [START, 4, 5, END]


def test_decoding_stops_at_the_end_whatever_follows():
    vocabulary = Vocabulary.of_captions(["a b"])
    assert vocabulary.decode([START, 4, END, 5, 5]) == ["a"]
    assert vocabulary.decode([START, 4, 5]) == ["a", "b"]


def test_case_and_punctuation_do_not_make_new_words():
    assert split_words("Two DOGS, one cat's-ear; 3rd (maybe)!") == ["two", "dogs", "one", "cat's-ear", "3rd", "maybe"]


@pytest.mark.parametrize("words", [["a"], [*SPECIAL_WORDS, "a", "a"]])
def test_a_list_that_is_no_vocabulary_is_refused(words):
    with pytest.raises(ValueError, match=r"begins with|repeated: a"):
        Vocabulary(words)
