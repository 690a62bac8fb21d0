"""Networks of the zoo: config and list of gates follow what is inserted, so that saved weights can be rebuilt."""

import pytest
import torch

import zoo


def create(**options):
    torch.manual_seed(0)
    return zoo.create_model("resnet20", width_multiplier=0.25, **options).eval()


def test_config_names_the_stages_and_all_options_of_the_mechanism():
    model = create()
    zoo.insert_attention(model, "se", stages=[3, 1], attention_args={"reduction_ratio": 4})
    assert model.config["attention"] == "se"
    assert model.config["attention_stages"] == [1, 3]
    assert model.config["attention_args"] == {
        "reduction_ratio": 4, "min_hidden_channels": 1, "identity_start": True,
    }  # fmt: skip
    assert [place.stage for place in model.attention_places()] == [1, 1, 1, 3, 3, 3]
    assert [place.channels for place in model.attention_places()] == [4, 4, 4, 16, 16, 16]
    twin = zoo.create_model(**model.config)
    assert twin.attention_places() == model.attention_places()


def test_weights_saved_after_an_insertion_are_rebuilt_from_their_card(tmp_path, save_tiny_weights):
    model = create()
    zoo.insert_attention(model, "cbam")
    save_tiny_weights(tmp_path / "gated.yaml", model)
    loaded, card = zoo.load_pretrained(str(tmp_path / "gated.yaml"))
    assert card.model["attention"] == "cbam"
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded.eval()(images), model(images))


def test_a_network_with_several_kinds_of_gates_is_not_saved_under_one_name(tmp_path, save_tiny_weights):
    model = create()
    zoo.insert_attention(model, "se", stages=[1])
    zoo.insert_attention(model, "eca", stages=[2])
    assert [place.stage for place in model.attention_places()] == [1, 1, 1, 2, 2, 2]
    with pytest.raises((ValueError, RuntimeError)):
        save_tiny_weights(tmp_path / "mixed.yaml", model)
    zoo.remove_attention(model)
    assert model.config["attention"] is None
    assert model.attention_places() == ()


def test_gates_a_network_was_built_with_are_replaced_and_put_back():
    torch.manual_seed(0)
    model = zoo.create_model("mobilenet_v3_small", stem="cifar", width_multiplier=0.25).eval()
    images = torch.randn(2, 3, 32, 32)
    expected, config = model(images), dict(model.config)
    places, names = model.attention_places(), list(model.state_dict())
    with pytest.raises(ValueError, match=r"there is a gate already: features\.1\.block\.attention \(HardSqueeze"):
        zoo.insert_attention(model, "cbam")
    report = zoo.insert_attention(model, "cbam", replace=True)
    assert [gate.name for gate in report.gates] == [place.name for place in places]
    assert model.config["attention"] == "cbam"
    zoo.remove_attention(model)
    assert (model.config, model.attention_places(), list(model.state_dict())) == (config, places, names)
    assert torch.equal(model(images), expected)


def test_removal_leaves_gates_a_network_was_built_with():
    model = create(attention="se")
    with pytest.raises(ValueError, match="no inserted attention"):
        zoo.remove_attention(model)
    assert len(model.attention_places()) == 9
