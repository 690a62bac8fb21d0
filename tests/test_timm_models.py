"""The zoo inside timm: what its scripts do with a model, on ours."""

import copy
import pickle
import subprocess
import sys
from collections import deque

import pytest
import timm
import timm.data
import timm.optim
import timm.utils
import torch
from timm.models import DefaultCfg

import zoo
import zoo.timm_models
from zoo.factory import list_attention_for
from zoo.pretrained import load_card
from zoo.timm_models import TimmBackbone

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_every_model_is_there_with_and_without_every_attention() -> None:
    names = set(timm.list_models("zoo_*"))
    plain = {f"zoo_{name}" for name in zoo.list_models()}
    with_attention = {f"zoo_{name}_{each}" for name in zoo.list_models() for each in list_attention_for(name)}
    assert names == plain | with_attention
    assert {"zoo_resnet20_cbam", "zoo_vit_tiny_patch4_32_window"} < with_attention
    assert not {"zoo_resnet20_window", "zoo_vit_tiny_patch4_32_cbam", "zoo_vit_tiny_patch4_32_cross"} & names


def test_weights_with_a_card_are_tags_and_give_our_logits() -> None:
    of_classifiers = [name for name in zoo.list_weights() if load_card(name).model["name"] in zoo.list_models()]
    with_options = {
        "mobilenet_v1-width_multiplier-0.125-stem-cifar.cifar10": "zoo_mobilenet_v1",
        "mobilenet_v1-width_multiplier-0.125-stem-cifar_se.cifar10": "zoo_mobilenet_v1_se",
        "mobilenet_v1-width_multiplier-0.125-stem-cifar_cbam.cifar10": "zoo_mobilenet_v1_cbam",
        "resnet20_cbam-identity_start-True.cifar10": "zoo_resnet20_cbam",
    }
    tags = {f"{with_options[name]}.{name}" if name in with_options else f"zoo_{name}" for name in of_classifiers}
    assert set(timm.list_pretrained("zoo_*")) == tags
    model = timm.create_model("zoo_resnet20_cbam", pretrained=True).eval()
    ours, card = zoo.load_pretrained("resnet20_cbam.cifar10")
    assert torch.equal(model(IMAGES), ours(IMAGES))
    assert list(model.state_dict()) == list(ours.state_dict())
    assert model.pretrained_cfg["tag"] == "cifar10"
    data = timm.data.resolve_model_data_config(model)
    assert data["input_size"] == (3, 32, 32)
    assert data["mean"] == tuple(card.preprocessing["mean"])
    assert data["std"] == tuple(card.preprocessing["std"])


@pytest.mark.parametrize(
    ("architecture", "weights"),
    [
        ("zoo_mobilenet_v1", "mobilenet_v1-width_multiplier-0.125-stem-cifar.cifar10"),
        ("zoo_mobilenet_v1_se", "mobilenet_v1-width_multiplier-0.125-stem-cifar_se.cifar10"),
        ("zoo_resnet20_cbam", "resnet20_cbam-identity_start-True.cifar10"),
    ],
)
def test_weights_of_a_model_with_options_are_a_tag_of_their_whole_name(architecture: str, weights: str) -> None:
    model = timm.create_model(f"{architecture}.{weights}", pretrained=True).eval()
    assert torch.equal(model(IMAGES), zoo.load_pretrained(weights)[0](IMAGES))


def test_the_evaluation_transform_of_timm_is_that_of_the_card() -> None:
    from PIL import Image

    model = timm.create_model("zoo_resnet20_cbam.cifar10", pretrained=True)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    pixels = torch.randint(256, (32, 32, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    image = Image.fromarray(pixels.numpy())
    _, card = zoo.load_pretrained("resnet20_cbam.cifar10")
    torch.testing.assert_close(transform(image), card.preprocess(image), rtol=0, atol=1e-5)


def test_weights_are_adapted_to_other_classes_and_channels() -> None:
    model = timm.create_model("zoo_resnet20_se.cifar10", pretrained=True, num_classes=5, in_chans=1)
    assert model.num_classes == 5
    assert model(IMAGES[:, :1]).shape == (2, 5)


def test_an_architecture_without_weights_says_so() -> None:
    with pytest.raises(ValueError, match=r"there are no weights 'zoo_resnet56_sam'\. Known: none"):
        timm.create_model("zoo_resnet56_sam", pretrained=True)
    with pytest.raises(
        ValueError, match=r"no weights 'zoo_resnet20\.cifar1O'\. Did you mean 'cifar10'\? Known: cifar10"
    ):
        timm.create_model("zoo_resnet20.cifar1O", pretrained=True)


@pytest.mark.parametrize(
    "name", ["zoo_resnet20_cbam", "zoo_mobilenet_v1_se", "zoo_mobilenet_v2", "zoo_mobilenet_v3_small"]
)
def test_features_and_head_make_the_logits(name: str) -> None:
    model = timm.create_model(name, width_multiplier=0.25).eval()
    with torch.no_grad():
        features = model.forward_features(IMAGES)
        assert features.ndim == 4
        assert features.shape[1] == model.num_features
        assert torch.equal(model.forward_head(features), model(IMAGES))
        vectors = model.forward_head(features, pre_logits=True)
        assert vectors.shape == (2, model.head_hidden_size)
        assert torch.equal(model.get_classifier()(vectors), model(IMAGES))
        model.reset_classifier(7)
        assert model(IMAGES).shape == (2, model.num_classes) == (2, 7)
        model.reset_classifier(0)
        assert torch.equal(model(IMAGES), vectors)
        model.reset_classifier(3)
        assert model(IMAGES).shape == (2, 3)
    assert model.config["num_classes"] == 3


@pytest.mark.parametrize("pooling", ["class_token", "mean", "attention"])
def test_tokens_and_head_of_a_transformer_make_the_logits(pooling: str) -> None:
    tiny = {"embed_dim": 32, "depth": 2, "num_heads": 1, "pooling": pooling}
    model = timm.create_model("zoo_vit_tiny_patch4_32", img_size=48, drop_rate=0.5, drop_path_rate=0.1, **tiny).eval()
    assert (model.image_size, model.config["dropout"], model.config["drop_path_rate"]) == ((48, 48), 0.5, 0.1)
    with torch.no_grad():
        tokens = model.forward_features(IMAGES)
        assert tokens.shape == (2, 64 + model.num_prefix_tokens, 32)
        assert torch.equal(model.forward_head(tokens), model(IMAGES))
        vectors = model.forward_head(tokens, pre_logits=True)
        assert torch.equal(model.get_classifier()(vectors), model(IMAGES))
        model.reset_classifier(0)
        assert torch.equal(model(IMAGES), vectors)
    assert timm.data.resolve_model_data_config(model)["input_size"] == (3, 32, 32)


def test_a_model_without_a_head_is_made_with_no_classes() -> None:
    model = timm.create_model("zoo_resnet20_cbam", pretrained=True, num_classes=0).eval()
    assert model.num_classes == 0
    ours, _ = zoo.load_pretrained("resnet20_cbam.cifar10")
    torch.testing.assert_close(ours.fc(model(IMAGES)), ours(IMAGES))


def test_our_options_and_the_dropout_of_timm_are_passed_on() -> None:
    model = timm.create_model("zoo_mobilenet_v2_se", drop_rate=0.5, stem="cifar", attention_args={"reduction_ratio": 4})
    assert model.config["dropout"] == 0.5
    assert model.config["stem"] == "cifar"
    assert model.config["attention_args"]["reduction_ratio"] == 4
    timm.create_model("zoo_resnet20", drop_rate=0.0, drop_path_rate=0.0, global_pool="avg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_rate": 0.1}, r"drop_rate \(0\.1\) has no effect"),
        ({"drop_path_rate": 0.1}, "drop_path_rate"),
        ({"global_pool": "max"}, r"global_pool \('max'\) has no effect"),
        ({"features_only": True}, "features_only"),
        ({"widht_multiplier": 2}, r"unknown option 'widht_multiplier' .* Did you mean 'width_multiplier'\?"),
    ],
)
def test_what_would_have_no_effect_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timm.create_model("zoo_resnet20", **options)


def test_gradient_checkpointing_is_refused_only_when_it_is_wanted() -> None:
    model = timm.create_model("zoo_resnet20")
    model.set_grad_checkpointing(False)
    with pytest.raises(ValueError, match="gradient checkpointing has no effect"):
        model.set_grad_checkpointing(True)


def test_a_step_of_timms_training_with_its_optimizer_average_and_checkpoint(tmp_path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("zoo_resnet20_se", num_classes=4, width_multiplier=0.25)
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.1, weight_decay=1e-4)
    average = timm.utils.ModelEmaV3(model, decay=0.9)
    before = copy.deepcopy(model.state_dict())
    loss = torch.nn.functional.cross_entropy(model(IMAGES), torch.tensor([0, 3]))
    loss.backward()
    optimizer.step()
    average.update(model)
    assert not torch.equal(model.state_dict()["fc.weight"], before["fc.weight"])
    saver = timm.utils.CheckpointSaver(model, optimizer, model_ema=average, checkpoint_dir=str(tmp_path))
    saver.save_checkpoint(0, metric=0.5)
    saved = str(tmp_path / "checkpoint-0.pth.tar")
    again = timm.create_model("zoo_resnet20_se", num_classes=4, width_multiplier=0.25, checkpoint_path=saved)
    expected = average.module.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.state_dict().items()), "timm takes the EMA"
    raw = zoo.create_model("resnet20", attention="se", width_multiplier=0.25, pretrained=f"{saved}#entry=state_dict")
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in raw.state_dict().items())


def test_a_model_is_copied_and_pickled() -> None:
    model = timm.create_model("zoo_resnet20_se", width_multiplier=0.25).eval()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(again, TimmBackbone)
        assert torch.equal(again(IMAGES), model(IMAGES))


def test_the_zoo_itself_does_not_import_timm() -> None:
    code = "import sys, zoo; zoo.create_model('resnet20'); zoo.list_weights(); print('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_weights_of_a_published_model_without_its_gates_build_one_without(
    tmp_path, save_tiny_weights, monkeypatch
) -> None:
    model = zoo.create_model(
        "mobilenet_v3_small", attention="none", stem="cifar", width_multiplier=0.25, num_classes=10
    )
    config = zoo.timm_models._config_of_card(save_tiny_weights(tmp_path / "v3.digits.yaml", model.eval()))
    known = DefaultCfg(tags=deque([config.tag]), cfgs={config.tag: config}, is_pretrained=True)
    monkeypatch.setitem(zoo.timm_models.default_cfgs, config.architecture, known)
    built = zoo.timm_models.build("mobilenet_v3_small", None, pretrained=True)
    assert torch.equal(built.eval()(IMAGES), model(IMAGES))
