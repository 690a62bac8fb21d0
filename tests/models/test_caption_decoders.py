"""Both decoders: what they may look at, and that writing word by word is teacher forcing."""

import pytest
import torch

from zoo.models.caption_recurrent import RecurrentDecoder
from zoo.models.caption_transformer import TransformerDecoder
from zoo.models.caption_words import PAD

WORDS = torch.tensor([[1, 4, 5, 6, 2], [1, 6, 2, PAD, PAD]])


def make(kind, **options):
    torch.manual_seed(0)
    if kind == "transformer":
        return TransformerDecoder(num_words=8, context_dim=6, embed_dim=64, depth=2, num_heads=2, **options)
    return RecurrentDecoder(num_words=8, context_dim=6, embed_dim=8, hidden_dim=16, **options)


@pytest.fixture(params=["transformer", "recurrent"])
def decoder(request):
    return make(request.param).eval()


@pytest.fixture
def context():
    return torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(2))


def test_writing_word_by_word_gives_the_logits_of_teacher_forcing(decoder, context):
    forced = decoder(WORDS, context)
    state = decoder.start(context)
    for place in range(WORDS.shape[1]):
        logits, state = decoder.step(WORDS[:, place], state)
        exists = WORDS[:, place] != PAD
        torch.testing.assert_close(logits[exists], forced[exists, place])


def test_no_word_looks_at_later_words(decoder, context):
    changed = WORDS.clone()
    changed[:, 3:] = 7
    before, after = decoder(WORDS, context), decoder(changed, context)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[0, 3:], after[0, 3:])


def test_filling_behind_the_end_changes_nothing_before_it(decoder, context):
    short = decoder(WORDS[1:, :3], context[1:])
    torch.testing.assert_close(decoder(WORDS, context)[1, :3], short[0])


def test_context_that_does_not_exist_is_never_read(decoder, context):
    mask = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    filled = context.clone()
    filled[1, 4:] = torch.nan
    with_filling = decoder(WORDS, filled, context_mask=mask)
    torch.testing.assert_close(with_filling[1], decoder(WORDS[1:], context[1:, :4])[0])
    torch.testing.assert_close(with_filling[0], decoder(WORDS[:1], context[:1])[0])
    weights = decoder.attention_weights(WORDS, filled, context_mask=mask)
    assert weights[1, :, :, 4:].eq(0).all()


def test_a_context_with_no_token_at_all_gives_finite_logits_and_gradients(decoder, context):
    context.requires_grad_()
    mask = torch.tensor([[True] * 7, [False] * 7])
    logits = decoder(WORDS, context, context_mask=mask)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert context.grad[0].isfinite().all()
    assert context.grad[1].eq(0).all()


def test_attention_weights_are_shares_and_what_the_words_depend_on(decoder, context):
    weights = decoder.attention_weights(WORDS[:1], context[:1])
    maps = 4 if isinstance(decoder, TransformerDecoder) else 1
    assert weights.shape == (1, maps, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, maps, 5))
    state = decoder.start(context[:1])
    if "keys" in state:  # the context that the first word sees is the mean weighted by the first weights
        seen = decoder.attention(state["hidden"], state["keys"], state["context"])
        torch.testing.assert_close(seen[0], weights[0, 0, 0] @ context[0])


def test_attention_weights_of_chosen_layers_are_those_among_all():
    decoder = make("transformer").eval()
    context = torch.randn(1, 7, 6)
    everything = decoder.attention_weights(WORDS[:1], context)
    torch.testing.assert_close(decoder.attention_weights(WORDS[:1], context, layers=[1]), everything[:, 2:])


def test_every_parameter_learns_and_filling_has_no_gradient(decoder, context):
    logits = decoder(WORDS, context)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), WORDS[:, 1:].flatten(), ignore_index=PAD)
    loss.backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.count_nonzero(), name
    assert decoder.embedding.weight.grad[PAD].eq(0).all()


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_dropout_acts_in_training_alone(kind, context):
    decoder = make(kind, dropout=0.5)
    torch.manual_seed(0)
    first = decoder(WORDS, context)
    assert not torch.equal(first, decoder(WORDS, context))
    decoder.eval()
    assert torch.equal(decoder(WORDS, context), decoder(WORDS, context))


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@pytest.mark.parametrize("wrong", [{"dropout": 1.0}, {"num_words": 0}])
def test_values_out_of_range_are_refused(kind, wrong):
    options = {"num_words": 8, "context_dim": 6, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        (TransformerDecoder if kind == "transformer" else RecurrentDecoder)(**options)
