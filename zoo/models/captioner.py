"""Captioners: an image encoder of the zoo, and a decoder that looks at its feature map while it writes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.functional.validation import check_positive_int
from zoo.layers.positions import SinusoidalPositions2d
from zoo.models.backbone import Backbone
from zoo.models.caption_recurrent import RecurrentDecoder
from zoo.models.caption_search import WrittenCaptions, beam_search, greedy_search
from zoo.models.caption_transformer import TransformerDecoder
from zoo.models.caption_words import SPECIAL_WORDS, START
from zoo.registry import CAPTIONERS

Decoder = TransformerDecoder | RecurrentDecoder

EncoderFactory = Callable[[], Backbone]
"""Builds the network that looks at the image; its classifier is left out."""


class Captioner(nn.Module):
    """Writes what is in an image: ``forward`` maps images and the words so far to logits of the words that follow.

    Every cell of the encoder's feature map becomes a token, projected to ``embed_dim`` numbers, normalised and given
    the sinusoidal position of its row and column. These are the keys and values that the decoder attends to.

    ``config`` holds the plain keyword arguments with which ``zoo.create_captioner`` makes the same network again.

    Args:
        encoder: Builds the network whose feature map is looked at.
        decoder: Builds the decoder for a context of so many numbers per token.
        embed_dim: Width of the context's tokens, a multiple of 4.
        max_words: Longest caption that is written, at least 1.
        encoder_stage: Stage, counted from 1, that the encoder ends at; ``None`` for the last.

    Shape:
        images (batch, in_channels, height, width) and words (batch, steps) -> (batch, steps, num_words)

    Raises:
        ValueError: An argument is out of its range.
    """

    config: dict[str, Any]

    def __init__(
        self,
        encoder: EncoderFactory,
        decoder: Callable[[int], Decoder],
        *,
        embed_dim: int,
        max_words: int,
        encoder_stage: int | None = None,
    ) -> None:
        super().__init__()
        self.max_words = check_positive_int("max_words", max_words)
        self.encoder = encoder()
        if encoder_stage is not None:
            self.encoder.end_at_stage(check_positive_int("encoder_stage", encoder_stage))
        for name in self.encoder.classifier_names:
            setattr(self.encoder, name, nn.Identity())
        self.project = nn.Linear(self.encoder.feature_channels, embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        self.positions = SinusoidalPositions2d(embed_dim)
        self.decoder = decoder(embed_dim)

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        """Return the logits of the word behind each of ``words``, which are given ("teacher forcing").

        Args:
            images: (batch, in_channels, height, width)
            words: int64 (batch, steps), the start first; what comes out behind the end means nothing.
        """
        logits: Tensor = self.decoder(words, self.look(images)[0])
        return logits

    def look(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return the tokens of images, (batch, rows * columns, embed_dim), and their rows and columns."""
        features = self.encoder.feature_map(images)
        grid_size = (features.shape[2], features.shape[3])
        tokens = self.norm(self.project(features.flatten(2).transpose(1, 2)))
        return self.positions(tokens, grid_size), grid_size

    @torch.no_grad()
    def write(self, images: Tensor, *, beam_width: int = 1, length_power: float = 0.7) -> WrittenCaptions:
        """Write captions, word by word.

        Args:
            images: (batch, in_channels, height, width)
            beam_width: Captions followed at a time; 1 takes the likeliest word each time.
            length_power: How much a beam makes up for length, see :func:`zoo.models.caption_search.beam_search`.
        """
        context, _ = self.look(images)
        if beam_width == 1:
            return greedy_search(self.decoder, context, max_words=self.max_words)
        return beam_search(
            self.decoder, context, max_words=self.max_words, beam_width=beam_width, length_power=length_power
        )

    @torch.no_grad()
    def word_attention(self, images: Tensor, words: Tensor) -> Tensor:
        """Return where the decoder looks before it writes each word: the mean over its layers and heads.

        Args:
            images: (batch, in_channels, height, width)
            words: int64 (batch, steps), the start first; the map of a step is that of the word *behind* it.

        Returns:
            (batch, steps, rows, columns); each map sums to 1
        """
        context, grid_size = self.look(images)
        weights: Tensor = self.decoder.attention_weights(words, context)
        return weights.mean(1).unflatten(2, grid_size)


class FixedCaption(nn.Module):
    """A captioner under a fixed sequence of words: what costs, timings and fingerprints are taken of.

    ``forward`` maps images to the logits behind the last of ``max_words`` words, (batch, num_words).

    Args:
        captioner: The captioner.
    """

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, images: Tensor) -> Tensor:
        """Return the last logits of (batch, in_channels, height, width) images."""
        num_written = self.captioner.decoder.num_words - len(SPECIAL_WORDS)
        written = torch.arange(self.captioner.max_words - 1, device=images.device) % max(1, num_written)
        words = functional.pad(written + len(SPECIAL_WORDS), (1, 0), value=START)
        return self.captioner(images, words.expand(len(images), -1))[:, -1]


class FreeCaption(nn.Module):
    """A captioner that writes by itself: what latencies are taken of.

    ``forward`` maps images to the words with the likeliest one each time, (batch, max_words + 2).

    Args:
        captioner: The captioner.
    """

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, images: Tensor) -> Tensor:
        """Return the words written about (batch, in_channels, height, width) images."""
        return self.captioner.write(images).words


def with_fixed_words(model: nn.Module) -> nn.Module:
    """Return what maps images alone to logits: a captioner under :class:`FixedCaption`, any other network itself."""
    return FixedCaption(model) if isinstance(model, Captioner) else model


def check_num_words(num_classes: int) -> int:
    """Return the number of words, special ones included, when there is one to write besides those.

    Raises:
        ValueError: There is none.
    """
    if check_positive_int("num_classes", num_classes) <= len(SPECIAL_WORDS):
        raise ValueError(f"num_classes ({num_classes}) must count a word besides {', '.join(SPECIAL_WORDS)}")
    return num_classes


@CAPTIONERS.register("captioner_transformer")
def create_transformer_captioner(
    *,
    encoder: EncoderFactory,
    num_classes: int,
    max_words: int,
    encoder_stage: int | None = None,
    embed_dim: int = 128,
    depth: int = 2,
    num_heads: int = 4,
    dropout: float = 0.1,
) -> Captioner:
    """Create a captioner whose decoder is a transformer; see :class:`TransformerDecoder`.

    Args:
        encoder: Builds the network whose feature map is looked at.
        num_classes: Words that can be read and written, special ones included: the number of logits.
        max_words: Longest caption that is written.
        encoder_stage: Stage, counted from 1, that a ResNet ends at, for a finer map; ``None`` for the last.
        embed_dim: Width of image tokens and words, a multiple of 4.
        depth: Blocks of the decoder.
        num_heads: Heads of each attention; must divide ``embed_dim``.
        dropout: Share dropped in training in the decoder.
    """

    def decoder(context_dim: int) -> Decoder:
        return TransformerDecoder(
            num_words=check_num_words(num_classes),
            context_dim=context_dim,
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            dropout=dropout,
        )

    return Captioner(encoder, decoder, embed_dim=embed_dim, max_words=max_words, encoder_stage=encoder_stage)


@CAPTIONERS.register("captioner_recurrent")
def create_recurrent_captioner(
    *,
    encoder: EncoderFactory,
    num_classes: int,
    max_words: int,
    encoder_stage: int | None = None,
    embed_dim: int = 128,
    hidden_dim: int = 256,
    attention_dim: int = 64,
    dropout: float = 0.1,
) -> Captioner:
    """Create a captioner whose decoder is recurrent, with additive attention; see :class:`RecurrentDecoder`.

    Args:
        encoder: Builds the network whose feature map is looked at.
        num_classes: Words that can be read and written, special ones included: the number of logits.
        max_words: Longest caption that is written.
        encoder_stage: Stage, counted from 1, that a ResNet ends at, for a finer map; ``None`` for the last.
        embed_dim: Width of image tokens and words, a multiple of 4.
        hidden_dim: Width of the decoder's state.
        attention_dim: Width in which the state and the image's tokens are compared.
        dropout: Share dropped in training in the decoder.
    """

    def decoder(context_dim: int) -> Decoder:
        return RecurrentDecoder(
            num_words=check_num_words(num_classes),
            context_dim=context_dim,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            attention_dim=attention_dim,
            dropout=dropout,
        )

    return Captioner(encoder, decoder, embed_dim=embed_dim, max_words=max_words, encoder_stage=encoder_stage)
