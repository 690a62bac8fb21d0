"""Searches against all captions there are, on a vocabulary of three words."""

import itertools

import pytest
import torch

from zoo.models.caption_recurrent import RecurrentDecoder
from zoo.models.caption_search import beam_search, greedy_search, word_log_probabilities
from zoo.models.caption_transformer import TransformerDecoder
from zoo.models.caption_words import END, PAD, START, UNKNOWN

WORDS = (4, 5, 6)
MAX_WORDS = 3


class Table:
    """A decoder whose next word depends on the words before it alone, through a table drawn from a seed."""

    def __init__(self, seed, sharpness=2.0):
        generator = torch.Generator().manual_seed(seed)
        size = (4 + len(WORDS),) * (MAX_WORDS + 1)
        self.logits = sharpness * torch.randn(*size, 4 + len(WORDS), generator=generator)

    def start(self, context, *, context_mask=None):
        return {"prefix": torch.zeros(len(context), 0, dtype=torch.int64)}

    def step(self, words, state):
        prefix = torch.cat([state["prefix"], words[:, None]], 1)
        filled = torch.nn.functional.pad(prefix, (0, MAX_WORDS + 1 - prefix.shape[1]))
        return self.logits[tuple(filled.T)], {"prefix": prefix}


def all_captions():
    for length in range(MAX_WORDS + 1):
        yield from itertools.product(WORDS, repeat=length)


def log_probability(decoder, caption):
    """Of a caption and its end, word by word."""
    state = decoder.start(torch.zeros(1, 1, 1))
    total, before = 0.0, START
    for word in (*caption, END):
        logits, state = decoder.step(torch.tensor([before]), state)
        total += float(torch.log_softmax(logits[0], 0)[word])
        before = word
    return total


def as_words(caption):
    return [START, *caption, END, *[PAD] * (MAX_WORDS - len(caption))]


@pytest.mark.parametrize("length_power", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_there_are_prefixes_finds_the_best_of_all_captions(seed, length_power):
    decoder = Table(seed)
    scores = {
        caption: log_probability(decoder, caption) / (len(caption) + 1) ** length_power for caption in all_captions()
    }
    best = max(scores, key=scores.__getitem__)
    found = beam_search(
        decoder,
        torch.zeros(2, 1, 1),
        max_words=MAX_WORDS,
        beam_width=len(WORDS) ** MAX_WORDS,
        length_power=length_power,
    )
    assert found.words.tolist() == [as_words(best)] * 2
    assert found.score.tolist() == pytest.approx([scores[best]] * 2, abs=1e-5)
    assert found.log_probability.tolist() == pytest.approx([log_probability(decoder, best)] * 2, abs=1e-5)


def test_length_normalisation_changes_which_caption_wins():
    """Among four tables there is one where the mean over words prefers a longer caption than the sum does."""
    lengths = []
    for power in (0.0, 1.0):
        found = [
            beam_search(Table(s), torch.zeros(1, 1, 1), max_words=3, beam_width=27, length_power=power)
            for s in range(4)
        ]
        lengths.append([int((one.words != PAD).sum()) for one in found])
    assert all(longer >= shorter for shorter, longer in zip(*lengths, strict=True))
    assert lengths[0] != lengths[1]


@pytest.mark.parametrize("seed", range(6))
def test_a_wider_beam_never_scores_worse_on_these_tables_and_reports_the_score_of_its_own_words(seed):
    decoder = Table(seed)
    scores = []
    for width in (1, 3, 27):
        found = beam_search(decoder, torch.zeros(1, 1, 1), max_words=MAX_WORDS, beam_width=width, length_power=0.7)
        caption = tuple(word for word in found.words[0].tolist() if word in WORDS)
        assert float(found.log_probability) == pytest.approx(log_probability(decoder, caption), abs=1e-5)
        scores.append(float(found.score))
    assert scores[-1] == max(scores)


@pytest.mark.parametrize("seed", range(4))
def test_greedy_search_takes_the_likeliest_word_each_time(seed):
    decoder = Table(seed)
    state, expected, before = decoder.start(torch.zeros(1, 1, 1)), [], START
    while len(expected) < MAX_WORDS:
        logits, state = decoder.step(torch.tensor([before]), state)
        before = max((END, *WORDS), key=lambda word: float(logits[0, word]))
        if before == END:
            break
        expected.append(before)
    found = greedy_search(decoder, torch.zeros(1, 1, 1), max_words=MAX_WORDS)
    assert found.words.tolist() == [as_words(expected)]
    assert float(found.log_probability) == pytest.approx(log_probability(decoder, expected), abs=1e-5)


def test_filling_a_second_start_and_the_unknown_word_are_never_written():
    log_p = word_log_probabilities(torch.zeros(1, 7))
    assert log_p[0, [PAD, START, UNKNOWN]].tolist() == [-torch.inf] * 3
    assert log_p[0, [END, *WORDS]].exp().tolist() == pytest.approx([1 / 7] * 4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TransformerDecoder, {"embed_dim": 32, "depth": 2, "num_heads": 1}),
        (RecurrentDecoder, {"embed_dim": 8, "hidden_dim": 12}),
    ],
)
def test_searching_in_a_batch_is_searching_one_by_one(kind, options):
    """States are carried along with the prefixes that the beam keeps, and each image keeps its own context."""
    torch.manual_seed(0)
    decoder = kind(num_words=7, context_dim=6, **options).eval()
    with torch.no_grad():
        decoder.head.weight.mul_(8)
    context = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))
    together = beam_search(decoder, context, max_words=4, beam_width=3)
    for row in range(3):
        alone = beam_search(decoder, context[row : row + 1], max_words=4, beam_width=3)
        assert torch.equal(alone.words[0], together.words[row])
        torch.testing.assert_close(alone.score[0], together.score[row])
        assert float(log_likelihood(decoder, together.words[row : row + 1], context[row : row + 1])) == pytest.approx(
            float(together.log_probability[row]), abs=1e-4
        )


@torch.no_grad()
def log_likelihood(decoder, words, context):
    """Of written words under teacher forcing."""
    log_p = torch.log_softmax(decoder(words[:, :-1], context), -1)
    taken = log_p.gather(2, words[:, 1:, None])[..., 0]
    return (taken * (words[:, 1:] != PAD)).sum()


def test_numbers_out_of_range_are_refused():
    for option in ({"max_words": 0}, {"beam_width": 0}, {"length_power": -1.0}):
        with pytest.raises(ValueError, match=next(iter(option))):
            beam_search(Table(0), torch.zeros(1, 1, 1), **{"max_words": 3, **option})
