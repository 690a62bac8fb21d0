"""Captioners: any encoder of the zoo, what the decoder is shown, and the attention kept for each word."""

import pytest
import torch

import zoo
from zoo.evaluation.complexity import count_macs
from zoo.models.caption_words import END, PAD, START
from zoo.models.captioner import FixedCaption, FreeCaption, with_fixed_words

WORDS = torch.tensor([[START, 5, 6, 7, END, PAD], [START, 8, END, PAD, PAD, PAD]])
ENCODERS = [
    ("resnet20", {"width_multiplier": 0.25, "attention": "se"}, None, (8, 8)),
    ("resnet20", {"width_multiplier": 0.5, "stem": "imagenet"}, 1, (8, 8)),
    ("mobilenet_v1", {"width_multiplier": 0.125, "stem": "cifar"}, None, (4, 4)),
    ("mobilenet_v2", {"width_multiplier": 0.125, "stem": "cifar"}, None, (4, 4)),
    ("mobilenet_v3_small", {"width_multiplier": 0.125, "stem": "cifar"}, None, (4, 4)),
    ("vit_tiny_patch4_32", {"embed_dim": 32, "depth": 1, "num_heads": 1, "num_registers": 2}, None, (8, 8)),
    ("cct_2_3x2_32", {"embed_dim": 32, "depth": 1, "num_heads": 1}, None, (8, 8)),
]
DECODERS = {
    "captioner_transformer": {"embed_dim": 32, "num_heads": 1, "depth": 1},
    "captioner_recurrent": {"embed_dim": 16, "hidden_dim": 24, "attention_dim": 8},
}


def make(name="captioner_transformer", encoder="resnet20", encoder_args=None, **options):
    torch.manual_seed(0)
    encoder_args = {"width_multiplier": 0.25} if encoder_args is None else encoder_args
    options = {"num_classes": 12, "max_words": 5, **DECODERS[name], **options}
    return zoo.create_captioner(name, encoder=encoder, encoder_args=encoder_args, **options)


def images(count=2, side=32):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(("encoder", "encoder_args", "stage", "grid"), ENCODERS)
def test_every_kind_of_encoder_is_looked_at_and_learns(name, encoder, encoder_args, stage, grid):
    captioner = make(name, encoder, encoder_args, encoder_stage=stage)
    logits = captioner(images(), WORDS)
    assert logits.shape == (2, 6, 12)
    maps = captioner.word_attention(images(), WORDS[:, :4])
    assert maps.shape == (2, 4, *grid)
    real = WORDS[:, :4] != PAD
    torch.testing.assert_close(maps.sum((2, 3))[real], torch.ones(int(real.sum())))
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), WORDS[:, 1:].flatten(), ignore_index=PAD).backward()
    missing = [key for key, parameter in captioner.named_parameters() if parameter.grad is None]
    assert missing == []


def test_the_map_of_a_word_is_laid_out_as_the_image_where_that_is_not_square():
    captioner = make("captioner_recurrent", "resnet20", {"width_multiplier": 0.25}).eval()
    pictures = images(1, 32)[:, :, :, :20]
    context, grid_size = captioner.look(pictures)
    assert grid_size == (8, 5)
    maps = captioner.word_attention(pictures, WORDS[:1, :3])
    expected = captioner.decoder.attention_weights(WORDS[:1, :3], context)[0, 0]
    assert torch.equal(maps[0, :, 2, 3], expected[:, 2 * 5 + 3])


def test_tokens_know_their_place():
    """A constant map gives tokens that differ in position alone."""
    captioner = make(encoder_args={"width_multiplier": 0.25}).eval()
    captioner.encoder.feature_map = lambda pictures: torch.ones(1, 16, 3, 4)
    context, _ = captioner.look(images(1))
    assert len(context[0].unique(dim=0)) == 12


@pytest.mark.parametrize("name", DECODERS)
def test_a_config_makes_the_same_network_again(name):
    captioner = make(name, encoder_stage=2)
    again = zoo.create_captioner(**captioner.config)
    assert again.config == captioner.config
    again.load_state_dict(captioner.state_dict())
    assert torch.equal(again.eval()(images(), WORDS), captioner.eval()(images(), WORDS))


@pytest.mark.parametrize("name", DECODERS)
def test_written_captions_begin_and_end_and_a_beam_is_at_least_as_likely_per_word(name):
    captioner = make(name).eval()
    greedy, beam = captioner.write(images()), captioner.write(images(), beam_width=3)
    for written in (greedy, beam):
        assert written.words.shape == (2, 7)
        assert written.words[:, 0].eq(START).all()
        assert written.words.eq(END).sum(1).eq(1).all()
    lengths = (greedy.words != PAD).sum(1) - 1
    assert (beam.score >= greedy.log_probability / lengths**0.7 - 1e-5).all()


def test_training_mode_and_gradients_are_left_as_they_are_by_writing():
    captioner = make().train()
    written = captioner.write(images())
    assert not written.log_probability.requires_grad
    assert captioner.training


@pytest.mark.parametrize("name", DECODERS)
def test_costs_are_counted_under_a_fixed_caption(name):
    captioner = make(name)
    macs = count_macs(with_fixed_words(captioner), (3, 32, 32))
    assert macs > count_macs(with_fixed_words(make(name, max_words=2)), (3, 32, 32))
    logits = FixedCaption(captioner.eval())(images())
    words = torch.tensor([[START, 4, 5, 6, 7]] * 2)
    torch.testing.assert_close(logits, captioner(images(), words)[:, -1])
    assert torch.equal(FreeCaption(captioner)(images()), captioner.write(images()).words)
    plain = torch.nn.Linear(2, 2)
    assert with_fixed_words(plain) is plain


def test_only_the_chosen_stages_of_the_encoder_are_there():
    captioner = make(encoder_args={"attention": "se"}, encoder_stage=2)
    assert not any(name.startswith(("encoder.layer3", "encoder.fc")) for name in captioner.state_dict())
    assert {place.stage for place in captioner.encoder.attention_places()} == {1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "resnet2O"}, "unknown model 'resnet2O'"),
        ({"encoder_args": {"num_classes": 3}}, "the captioner itself sets num_classes"),
        ({"encoder_args": {"widht_multiplier": 1.0}}, "unknown option 'widht_multiplier' of model 'resnet20'"),
        ({"encoder_stage": 4}, r"stage \(4\) must be from 1 to 3"),
        ({"encoder": "mobilenet_v2", "encoder_args": {}, "encoder_stage": 1}, "mobilenet_v2 cannot end at stage 1"),
        ({"embed_dims": 32}, "unknown option 'embed_dims' of captioner 'captioner_transformer'"),
        ({"num_classes": 4}, r"num_classes \(4\) must count a word besides <pad>"),
        ({"max_words": 0}, r"max_words \(0\)"),
        ({"embed_dim": 34}, r"embed_dim \(34\) must be a multiple of 4"),
    ],
)
def test_values_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_an_unknown_captioner_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"'captioner_transfomer'\. Did you mean 'captioner_transformer'"):
        zoo.create_captioner("captioner_transfomer", num_classes=9, max_words=3)
    assert zoo.list_captioners() == sorted(DECODERS)


def test_an_encoder_can_start_from_a_classifier(tmp_path, save_tiny_weights, tiny_model):
    save_tiny_weights(tmp_path / "tiny.digits.yaml")
    captioner = make(encoder_pretrained=str(tmp_path / "tiny.digits.yaml"), encoder_stage=2).eval()
    trained = tiny_model.eval().state_dict()
    for name, tensor in captioner.encoder.state_dict().items():
        assert torch.equal(tensor, trained[name]), name
    assert "encoder_pretrained" not in captioner.config
    with pytest.raises(ValueError, match="resnet20"):
        make(encoder="mobilenet_v1", encoder_pretrained=str(tmp_path / "tiny.digits.yaml"))
