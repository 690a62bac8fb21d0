"""Names and options: what the factory accepts, refuses, and writes down."""

import pytest
import torch

from zoo.factory import create_attention, create_model, list_attention, list_models


def test_lists_are_sorted_and_complete():
    assert list_models() == sorted(list_models())
    assert {"resnet20", "resnet110", "resnet101", "mobilenet_v1", "mobilenet_v3_large"} <= set(list_models())
    assert {"cbam", "cbam_channel", "eca", "sam", "se"} <= set(list_attention())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "mobilnet_v2"}, r"unknown model 'mobilnet_v2'. Did you mean 'mobilenet_v2'\?"),
        ({"attention": "cbma"}, "unknown attention 'cbma'. Did you mean 'cbam'?"),
        ({"width_multiplyer": 2}, "unknown option 'width_multiplyer' of model 'resnet20'. Did you mean 'width_mult"),
        ({"dropout": 0.1}, "unknown option 'dropout' of model 'resnet20'. Known: num_classes"),
        ({"atention": "se"}, "unknown option 'atention' of model 'resnet20'. Did you mean 'attention'?"),
        ({"attention": "se", "attention_args": {"reduction": 8}}, "unknown option 'reduction' of attention 'se'."),
        ({"attention": "se", "attention_args": {"channels": 8}}, "unknown option 'channels' of attention 'se'."),
        ({"attention": "se", "attention_args": {"reduction_ratio": 0}}, r"reduction_ratio \(0\) must be"),
        ({"attention_args": {"reduction_ratio": 8}}, "has no effect with attention=None"),
        ({"attention": "none", "attention_args": {"reduction_ratio": 8}}, "has no effect with attention='none'"),
        ({"attention_stages": [1]}, r"attention_stages \(\[1\]\) has no effect with attention=None"),
        ({"attention": "none", "attention_stages": []}, "has no effect with attention='none'"),
        ({"attention": "se", "attention_stages": []}, r"attention_stages \(\[\]\) must be a list of one or more"),
        ({"attention": "se", "attention_stages": 1}, r"attention_stages \(1\) must be a list"),
        ({"attention": "se", "attention_stages": "12"}, r"attention_stages \('12'\) must be a list"),
        ({"attention": "se", "attention_stages": [2, 2]}, "must name each stage once"),
        ({"attention": "se", "attention_stages": [0]}, r"attention_stages entry \(0\) must be an integer of at least"),
        ({"attention": "se", "attention_stages": [3, 4]}, "stage 4 has no place for attention; stages with one: 1, 2"),
        ({"num_classes": 0}, r"num_classes \(0\) must be an integer of at least 1"),
        ({"num_classes": True}, r"num_classes \(True\) must be"),
        ({"num_classes": 10.0}, r"num_classes \(10.0\) must be"),
        ({"in_channels": -3}, r"in_channels \(-3\) must be an integer of at least 1"),
        ({"stem": "cifar10"}, r"stem \('cifar10'\) must be one of cifar, imagenet"),
        ({"width_multiplier": 0}, r"width_multiplier \(0\) must be positive"),
        ({"width_multiplier": float("nan")}, r"width_multiplier \(nan\) must be positive and finite"),
        ({"width_multiplier": "wide"}, r"width_multiplier \('wide'\) must be a number"),
    ],
)
def test_mistakes_are_refused_with_the_fact_and_the_nearest_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        create_model(**{"name": "resnet20", **arguments})


@pytest.mark.parametrize(
    ("name", "num_classes", "stem"),
    [("resnet20", 10, "cifar"), ("resnet18", 1000, "imagenet"), ("mobilenet_v1", 1000, "imagenet")],
)
def test_defaults_are_those_of_the_family(name, num_classes, stem):
    with torch.device("meta"):
        config = create_model(name).config
    assert (config["num_classes"], config["stem"]) == (num_classes, stem)


def test_config_holds_every_argument_resolved_as_plain_values():
    model = create_model("resnet20", attention="cbam", attention_args={"reduction_ratio": 4}, attention_stages=(2, 3))
    assert model.config == {
        "name": "resnet20",
        "attention": "cbam",
        "attention_args": {
            "reduction_ratio": 4,
            "min_hidden_channels": 1,
            "kernel_size": 7,
            "pooling": ["mean", "max"],
            "identity_start": False,
        },
        "attention_stages": [2, 3],
        "num_classes": 10,
        "in_channels": 3,
        "stem": "cifar",
        "shortcut": "pad",
        "width_multiplier": 1.0,
    }


def test_empty_options_are_no_options():
    assert create_model("resnet20", attention_args={}).config["attention_args"] is None
    assert create_model("resnet20", attention="none").config["attention"] == "none"


def test_options_reach_the_mechanism():
    module = create_model("resnet20", attention="se", attention_args={"reduction_ratio": 4})
    assert module.layer2[0].attention.mlp.hidden_channels == 8
    assert create_attention("se", 32, reduction_ratio=4).mlp.hidden_channels == 8


def test_create_attention_refuses_what_the_model_factory_refuses():
    with pytest.raises(ValueError, match=r"unknown attention 'sse'\. Did you mean 'se'"):
        create_attention("sse", 8)
    with pytest.raises(ValueError, match=r"channels \(0\) must be an integer of at least 1"):
        create_attention("se", 0)
    with pytest.raises(ValueError, match="unknown option 'ratio' of attention 'se'"):
        create_attention("se", 8, ratio=2)
