"""How a decoder writes by itself: the likeliest word each time, or the likeliest caption of a beam."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional.validation import check_positive_int
from zoo.models.caption_words import END, PAD, START, UNKNOWN

State = dict[str, Tensor]
"""What a decoder has to remember between two words; the first axis of every tensor is the batch."""


class WordDecoder(Protocol):
    """Writes one word after the other while it looks at a context."""

    def start(self, context: Tensor, *, context_mask: Tensor | None = None) -> State:
        """Return the state before the first word, of a context (batch, context_tokens, context_dim)."""

    def step(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (batch, num_words) of the words that follow ``words`` (batch,), and the next state."""


class WrittenCaptions(NamedTuple):
    """What a search found.

    Attributes:
        words: int64 (batch, max_words + 2): start, words, end, filling.
        log_probability: float32 (batch,), the sum over words and end, in nats.
        score: What was searched for, (batch,): the sum divided by the number of words and end to a power.
    """

    words: Tensor
    log_probability: Tensor
    score: Tensor


@torch.no_grad()
def greedy_search(
    decoder: WordDecoder, context: Tensor, *, max_words: int, context_mask: Tensor | None = None
) -> WrittenCaptions:
    """Write the likeliest word each time until the end, which is put behind ``max_words`` words in any case.

    The score is the log probability.

    Args:
        decoder: What writes, in evaluation mode.
        context: What it looks at, (batch, context_tokens, context_dim).
        max_words: Longest caption, at least 1.
        context_mask: Boolean (batch, context_tokens), True for tokens that exist.
    """
    check_positive_int("max_words", max_words)
    batch = context.shape[0]
    state = decoder.start(context, context_mask=context_mask)
    words = torch.full((batch, max_words + 2), PAD, device=context.device)
    words[:, 0] = START
    total = torch.zeros(batch, device=context.device)
    running = torch.ones(batch, dtype=torch.bool, device=context.device)
    for place in range(1, max_words + 2):
        logits, state = decoder.step(words[:, place - 1], state)
        log_p = word_log_probabilities(logits)
        best, chosen = log_p.max(dim=1)
        if place == max_words + 1:
            best, chosen = log_p[:, END], torch.full_like(chosen, END)
        words[:, place] = torch.where(running, chosen, PAD)
        total = total + torch.where(running, best, 0)
        running = running & (chosen != END)
        if not running.any():
            break
    return WrittenCaptions(words, total, total.clone())


@torch.no_grad()
def beam_search(
    decoder: WordDecoder,
    context: Tensor,
    *,
    max_words: int,
    beam_width: int = 4,
    length_power: float = 0.7,
    context_mask: Tensor | None = None,
) -> WrittenCaptions:
    """Return the caption with the best score among those that a beam meets.

    The score of a caption of n words is ``(sum of log p) / (n + 1)^length_power``, the end counted as a word. Every
    prefix in the beam is also tried with the end behind it, so with a beam as wide as there are prefixes the result
    is the best of all captions of at most ``max_words`` words.

    Args:
        decoder: What writes, in evaluation mode.
        context: What it looks at, (batch, context_tokens, context_dim).
        max_words: Longest caption, at least 1.
        beam_width: Prefixes kept at a time, at least 1.
        length_power: 0 scores by probability alone, which favours short captions; 1 by the mean over words.
        context_mask: Boolean (batch, context_tokens), True for tokens that exist.

    Raises:
        ValueError: A number is out of its range.
    """
    check_positive_int("max_words", max_words)
    check_positive_int("beam_width", beam_width)
    if length_power < 0:
        raise ValueError(f"length_power ({length_power}) must be at least 0")
    batch, device = context.shape[0], context.device
    mask = None if context_mask is None else context_mask.repeat_interleave(beam_width, 0)
    state = decoder.start(context.repeat_interleave(beam_width, 0), context_mask=mask)
    prefixes = torch.full((batch, beam_width, max_words + 2), PAD, device=device)
    prefixes[:, :, 0] = START
    sums = torch.full((batch, beam_width), -torch.inf, device=device)
    sums[:, 0] = 0  # all prefixes are the same at first: one counts
    nothing = torch.full_like(sums[:, 0], -torch.inf)
    best = WrittenCaptions(prefixes[:, 0], nothing, nothing)
    offsets = torch.arange(batch, device=device)[:, None] * beam_width
    for place in range(1, max_words + 2):
        logits, state = decoder.step(prefixes[:, :, place - 1].flatten(), state)
        log_p = word_log_probabilities(logits).unflatten(0, (batch, beam_width))
        best = _keep_best(best, prefixes, sums + log_p[:, :, END], place, length_power)
        longest = (max_words + 1) ** length_power
        if place == max_words + 1 or bool((sums.amax(1) / longest <= best.score).all()):
            break
        log_p[:, :, END] = -torch.inf
        sums, flat = (sums[:, :, None] + log_p).flatten(1).topk(beam_width, dim=1)
        origin, chosen = flat // log_p.shape[2], flat % log_p.shape[2]
        prefixes = prefixes.gather(1, origin[:, :, None].expand_as(prefixes)).clone()
        prefixes[:, :, place] = chosen
        rows = (offsets + origin).flatten()
        state = {name: tensor.index_select(0, rows) for name, tensor in state.items()}
    return best


def _keep_best(
    best: WrittenCaptions, prefixes: Tensor, ended: Tensor, place: int, length_power: float
) -> WrittenCaptions:
    """Return the better of what was best and the prefixes with an end at ``place``, whose log p are ``ended``."""
    log_p, which = ended.max(dim=1)
    score = log_p / place**length_power
    words = prefixes[torch.arange(len(prefixes), device=prefixes.device), which].clone()
    words[:, place] = END
    better = score > best.score
    return WrittenCaptions(
        torch.where(better[:, None], words, best.words),
        torch.where(better, log_p, best.log_probability),
        torch.where(better, score, best.score),
    )


def word_log_probabilities(logits: Tensor) -> Tensor:
    """Return the log probabilities of the next word, in float32; -inf for what is never written.

    Filling, a second start and the unknown word are never written.
    """
    log_p = functional.log_softmax(logits.float(), dim=-1)
    log_p[..., [PAD, START, UNKNOWN]] = -torch.inf
    return log_p
