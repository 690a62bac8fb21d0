"""The block against its equation, and what it hands to its attention."""

import torch
from torch import nn

from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.layers.transformer_block import TransformerBlock


class Recorder(nn.Module):
    """An attention that returns a multiple of its tokens, and keeps what it was told."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.width, self.told = embed_dim, []

    def forward(self, tokens: torch.Tensor, **options: object) -> torch.Tensor:
        self.told.append(options)
        return 3 * tokens

    def attention_weights(self, tokens: torch.Tensor, **options: object) -> tuple:
        return tokens, options


def test_it_is_two_branches_with_their_norms_inside() -> None:
    torch.manual_seed(0)
    block, tokens = TransformerBlock(8, attention=Recorder, hidden_dim=16), torch.randn(2, 5, 8)
    after = tokens + 3 * block.norm1(tokens)
    torch.testing.assert_close(block(tokens), after + block.mlp(block.norm2(after)))
    assert (block.norm1.eps, block.norm2.eps) == (1e-6, 1e-6)


def test_layer_scale_multiplies_both_branches() -> None:
    torch.manual_seed(0)
    block, tokens = TransformerBlock(8, attention=Recorder, hidden_dim=16, layer_scale=0.5), torch.randn(2, 5, 8)
    nn.init.constant_(block.layer_scale2.scale, 0.25)
    after = tokens + 1.5 * block.norm1(tokens)
    torch.testing.assert_close(block(tokens), after + 0.25 * block.mlp(block.norm2(after)))


def test_a_dropped_path_leaves_the_tokens() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(8, attention=Recorder, hidden_dim=16, drop_path_rate=0.99)
    tokens = torch.randn(4, 5, 8)
    assert torch.equal(block(tokens), tokens)
    assert not torch.equal(block.eval()(tokens), tokens)


def test_what_it_is_told_reaches_the_attention() -> None:
    block, tokens = TransformerBlock(8, attention=Recorder, hidden_dim=16), torch.randn(2, 5, 8)
    block(tokens, grid_size=(1, 5))
    assert block.attention.told == [{"grid_size": (1, 5)}]
    normalised, options = block.attention_weights(tokens, heads=[1], grid_size=(1, 5))
    assert torch.equal(normalised, block.norm1(tokens))
    assert options == {"heads": [1], "grid_size": (1, 5)}


def test_attention_weights_are_those_of_its_attention() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(64, attention=lambda width: MultiHeadSelfAttention(width, num_heads=2), hidden_dim=64)
    tokens = torch.randn(2, 5, 64)
    query, key, _ = block.attention.project(block.norm1(tokens))
    expected = (query @ key.mT / 32**0.5).softmax(-1)
    torch.testing.assert_close(block.attention_weights(tokens, heads=[1]), expected[:, 1:])
