"""What may differ between weights and model, and what becomes of it."""

import logging
from pathlib import Path

import pytest
import torch
from torch import nn

import zoo
from zoo.pretrained import create_pretrained, load_into
from zoo.pretrained.adaptation import adapt_channels, is_identity

NARROW = {"width_multiplier": 0.25}
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def card(tmp_path: Path, save_tiny_weights) -> str:
    save_tiny_weights(tmp_path / "tiny.yaml")
    return str(tmp_path / "tiny.yaml")


@pytest.fixture
def gated_card(tmp_path: Path, save_tiny_weights) -> str:
    torch.manual_seed(1)
    model = zoo.create_model("resnet20", attention="se", attention_stages=[3], **NARROW)
    save_tiny_weights(tmp_path / "gated.yaml", model)
    return str(tmp_path / "gated.yaml")


def state_file(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    torch.save(tensors, path)
    return str(path)


def test_weights_of_the_same_net_are_used_as_they_are_and_nothing_is_said(card, tiny_model, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        model, report = create_pretrained("resnet20", card, **NARROW)
    assert caplog.records == []
    assert report.is_plain
    assert set(report.used) == set(model.state_dict())
    assert torch.equal(model.eval()(IMAGES), tiny_model.eval()(IMAGES))
    assert report.card.name == "tiny"
    assert report.sha256 == report.card.tensors["sha256"]


def test_the_number_of_classes_is_that_of_the_weights_unless_another_is_given(tmp_path, save_tiny_weights) -> None:
    model = zoo.create_model("resnet20", num_classes=4, **NARROW)
    data = {"name": "cluttered_digits", "split": "test", "class_names": list("abcd"), "options": {}}
    save_tiny_weights(tmp_path / "a.yaml", model, data=data)
    assert zoo.create_model("resnet20", pretrained=str(tmp_path / "a.yaml"), **NARROW).config["num_classes"] == 4


def test_another_number_of_classes_replaces_the_head_and_says_so_in_one_line(card, tiny_model, caplog) -> None:
    torch.manual_seed(5)
    with caplog.at_level(logging.WARNING):
        model, report = create_pretrained("resnet20", card, num_classes=7, **NARROW)
    (record,) = caplog.records
    assert record.message == report.summary()
    assert "2 adapted (the head for 10 classes is replaced by a fresh one for 7)" in record.message
    assert "\n" not in record.message
    assert set(report.adapted) == {"fc.weight", "fc.bias"}
    assert model.eval()(IMAGES).shape == (2, 7)
    own, theirs = model.state_dict(), tiny_model.state_dict()
    assert all(torch.equal(own[name], theirs[name]) for name in own if not name.startswith("fc."))
    assert own["fc.weight"].std() > 0, "the fresh head keeps its random start"


def test_a_grey_image_gives_what_three_equal_channels_gave(card, tiny_model) -> None:
    model, report = create_pretrained("resnet20", card, in_channels=1, **NARROW)
    grey = IMAGES[:, :1]
    torch.testing.assert_close(model.eval()(grey), tiny_model.eval()(grey.expand(-1, 3, -1, -1)), rtol=0, atol=1e-5)
    assert report.adapted == {"conv1.weight": "filters for 3 channels adapted to 1"}


def test_six_channels_give_what_the_three_gave_twice(card, tiny_model) -> None:
    model, _ = create_pretrained("resnet20", card, in_channels=6, **NARROW)
    twice = torch.cat([IMAGES, IMAGES], dim=1)
    torch.testing.assert_close(model.eval()(twice), tiny_model.eval()(IMAGES), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("channels", "in_channels"), [(3, 1), (3, 2), (3, 4), (3, 7), (1, 3), (4, 3)])
def test_equal_channels_give_the_same_sum_scaled_by_what_is_there(channels: int, in_channels: int) -> None:
    filters = torch.randn(5, 1, 2, 2).expand(5, channels, 2, 2)
    adapted = adapt_channels(filters, in_channels)
    assert adapted.shape == (5, in_channels, 2, 2)
    torch.testing.assert_close(adapted.sum(1), filters.sum(1))


@pytest.mark.parametrize("attention", ["se", "cbam", "eca", "sam"])
def test_gates_the_weights_do_not_have_start_as_the_identity(card, tiny_model, attention: str, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        model, report = create_pretrained("resnet20", card, attention=attention, **NARROW)
    assert torch.equal(model.eval()(IMAGES), tiny_model.eval()(IMAGES)), "bit for bit"
    assert model.config["attention_args"]["identity_start"] is True
    assert set(report.missing.values()) == {"a gate that starts as the identity"}
    assert all(".attention." in name for name in report.missing)
    assert "fresh (a gate that starts as the identity)" in caplog.text


def test_gates_that_change_the_features_are_taken_only_when_asked_for(card, tiny_model) -> None:
    fresh = {"attention": "se", "attention_args": {"identity_start": False}}
    model, report = create_pretrained("resnet20", card, **fresh, **NARROW)
    assert set(report.missing.values()) == {"a fresh gate, which changes the features"}
    assert (model.eval()(IMAGES) - tiny_model.eval()(IMAGES)).abs().max() > 1e-3
    model = zoo.create_model("resnet20", attention="se", **NARROW)
    before = model.state_dict()["conv1.weight"].clone()
    with pytest.raises(ValueError, match=r"no gate for layer1\.0\.attention, and a fresh one changes the features"):
        load_into(model, card)
    assert torch.equal(model.state_dict()["conv1.weight"], before)
    load_into(model, card, allow_fresh_gates=True)


def test_gates_in_more_stages_than_the_weights_have_are_added(gated_card) -> None:
    source, _ = zoo.load_pretrained(gated_card)
    fresh = zoo.create_model("resnet20", attention="se", **NARROW)
    report = load_into(fresh, gated_card, allow_fresh_gates=True)
    assert {name.split(".")[0] for name in report.missing} == {"layer1", "layer2"}
    gate = "layer3.0.attention.mlp.0.weight"
    assert torch.equal(fresh.state_dict()[gate], source.state_dict()[gate])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "attention is None, not 'se'"),
        ({"attention": "none"}, "attention is 'none', not 'se'"),
        ({"attention": "cbam"}, "attention is 'cbam', not 'se'"),
        ({"attention": "se", "attention_stages": [1]}, r"attention_stages is \[1\], not \[3\]"),
        (
            {"attention": "se", "attention_stages": [3], "attention_args": {"reduction_ratio": 8}},
            "'reduction_ratio': 8",
        ),
        ({"attention": "se", "attention_stages": [3], "attention_args": {"identity_start": True}}, "attention_args is"),
    ],
)
def test_gates_of_the_weights_are_never_dropped_or_read_by_others(gated_card, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zoo.create_model("resnet20", pretrained=gated_card, **options, **NARROW)


def test_own_gates_of_mobilenet_v3_are_not_replaced(tmp_path: Path) -> None:
    model = zoo.create_model("mobilenet_v3_small", width_multiplier=0.25)
    source = state_file(tmp_path / "a.pth", model.state_dict())
    zoo.create_model("mobilenet_v3_small", width_multiplier=0.25, pretrained=source)
    with pytest.raises(ValueError, match=r"a gate of another kind at features\.1\.block\.attention"):
        zoo.create_model("mobilenet_v3_small", attention="cbam", width_multiplier=0.25, pretrained=source)
    with pytest.raises(ValueError, match=r"unexpected \(features\.1\.block\.attention"):
        zoo.create_model("mobilenet_v3_small", attention="none", width_multiplier=0.25, pretrained=source)


def test_dropout_may_differ(tmp_path: Path, save_tiny_weights) -> None:
    small = {"num_classes": 10, "stem": "cifar", "width_multiplier": 0.25}
    save_tiny_weights(tmp_path / "a.yaml", zoo.create_model("mobilenet_v2", **small))
    zoo.create_model("mobilenet_v2", dropout=0.5, pretrained=str(tmp_path / "a.yaml"), **small)
    with pytest.raises(ValueError, match="stem is 'imagenet', not 'cifar'"):
        zoo.create_model("mobilenet_v2", **{**small, "stem": "imagenet"}, pretrained=str(tmp_path / "a.yaml"))


def test_a_foreign_file_is_said_tensor_by_tensor(tmp_path: Path, tiny_model) -> None:
    theirs = {
        f"module.{name.replace('fc.', 'linear.')}": tensor
        for name, tensor in tiny_model.state_dict().items()
        if "num_batches_tracked" not in name
    }
    source = state_file(tmp_path / "a.th", {"state_dict": {**theirs, "module.total_ops": torch.zeros(1)}, "epoch": 3})
    model, report = create_pretrained("resnet20", source, **NARROW)
    assert torch.equal(model.eval()(IMAGES), tiny_model.eval()(IMAGES))
    assert report.used["fc.weight"] == "linear.weight"
    assert report.entry == "state_dict"
    assert report.peeled == ("module.",)
    assert report.unexpected == {"module.total_ops": "a counter of a profiler"}
    assert set(report.missing.values()) == {"older files do not count the batches of a norm"}
    accounted = {**report.used, **report.adapted, **report.missing}
    assert set(accounted) == set(model.state_dict())
    described = report.describe()
    for line in (
        "fc.bias <- linear.bias",
        "entry state_dict",
        "prefixes taken off: module.",
        f"sha256 {report.sha256}",
    ):
        assert line in described


def test_kuangliu_names_of_shortcuts_and_head_are_known(tmp_path: Path) -> None:
    model = zoo.create_model("resnet18", stem="cifar", num_classes=10, width_multiplier=0.0625)
    state = model.state_dict()
    theirs = {name.replace("downsample", "shortcut").replace("fc.", "linear."): value for name, value in state.items()}
    source = state_file(tmp_path / "a.pth", {"net": theirs})
    options = {"stem": "cifar", "width_multiplier": 0.0625}
    loaded = zoo.create_model("resnet18", pretrained=source, **options)
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())


def test_nothing_without_an_explanation_is_loaded(tmp_path: Path, tiny_model) -> None:
    state = dict(tiny_model.state_dict())
    del state["layer1.0.conv1.weight"]
    state["extra.weight"] = torch.zeros(1)
    state["layer2.0.conv1.weight"] = torch.zeros(8, 4, 5, 5)
    source = state_file(tmp_path / "a.pth", state)
    model = zoo.create_model("resnet20", **NARROW)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match="do not fit the model") as caught:
        load_into(model, source)
    for fact in (
        "1 missing (layer1.0.conv1.weight)",
        "1 unexpected (extra.weight)",
        "1 of another shape (layer2.0.conv1.weight (8, 4, 5, 5) instead of (8, 4, 3, 3))",
    ):
        assert fact in str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_file_of_another_architecture_loads_nothing(tmp_path: Path) -> None:
    source = state_file(tmp_path / "a.pth", {"encoder.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="in none of the layouts known for this model"):
        zoo.create_model("resnet20", pretrained=source)
    with pytest.raises(ValueError, match=r"missing \(.*unexpected \(x\.y\)"):
        zoo.create_model(
            "resnet20",
            pretrained=state_file(
                tmp_path / "b.pth", {"x.y": torch.zeros(1), "conv1.weight": torch.zeros(16, 3, 3, 3)}
            ),
        )


def test_half_precision_tensors_fill_a_float32_model(tmp_path: Path, tiny_model) -> None:
    source = state_file(tmp_path / "a.pth", {name: value.half() for name, value in tiny_model.state_dict().items()})
    model = zoo.create_model("resnet20", pretrained=source, **NARROW)
    assert model.conv1.weight.dtype == torch.float32
    assert torch.equal(model.conv1.weight, tiny_model.conv1.weight.half().float())


def test_what_is_and_is_not_the_identity_is_told_apart_without_a_trace() -> None:
    assert is_identity(nn.Identity(), 4)
    assert not is_identity(nn.ReLU(), 4)
    gate = zoo.create_attention("cbam", 8, identity_start=True)
    before = {name: tensor.clone() for name, tensor in gate.state_dict().items()}
    assert is_identity(gate, 8)
    assert gate.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in gate.state_dict().items())


@pytest.mark.parametrize("name", ["resnet20", "resnet50", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small"])
@pytest.mark.parametrize("attention", [None, "cbam"])
def test_a_state_dict_of_ours_in_a_bare_file_is_loaded(tmp_path: Path, name: str, attention) -> None:
    options = {"attention": attention, "num_classes": 3, "width_multiplier": 0.25}
    model = zoo.create_model(name, **options)
    source = state_file(tmp_path / "a.pth", model.state_dict())
    loaded, report = create_pretrained(name, source, **options)
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in loaded.state_dict().items())
    assert set(report.used) == set(expected)


def test_gates_go_into_weights_whose_card_names_the_lack_of_any() -> None:
    weights, options = "mobilenet_v1-width_multiplier-0.125-stem-cifar.cifar10", {"width_multiplier": 0.125}
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    gated = zoo.create_model("mobilenet_v1", attention="se", pretrained=weights, stem="cifar", **options)
    assert torch.allclose(gated.eval()(images), zoo.load_pretrained(weights)[0](images), atol=1e-5)
