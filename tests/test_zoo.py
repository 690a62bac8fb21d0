"""The package itself: its public names, what importing it costs, weights through create_model."""

import subprocess
import sys

import pytest
import torch

import zoo


def test_every_public_name_exists_and_others_do_not():
    for name in zoo.__all__:
        assert getattr(zoo, name) is not None
        assert name in dir(zoo)
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'create_modle'"):
        zoo.create_modle  # noqa: B018


def test_using_a_model_imports_neither_trainer_nor_image_libraries():
    code = (
        "import sys, zoo; zoo.create_model('resnet20', attention='cbam'); "
        "heavy = {'lightning', 'pytorch_lightning', 'torchmetrics', 'torchvision', 'sklearn', 'PIL', 'matplotlib', "
        "'triton', 'jsonargparse', 'timm', 'onnx'}; print(sorted(heavy & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_weights_fill_a_model_built_with_the_arguments_of_their_card(tmp_path, tiny_model, save_tiny_weights):
    save_tiny_weights(tmp_path / "tiny.yaml")
    model = zoo.create_model("resnet20", width_multiplier=0.25, pretrained=str(tmp_path / "tiny.yaml"))
    expected = tiny_model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="shortcut is 'conv', not 'pad'"):
        zoo.create_model("resnet20", shortcut="conv", width_multiplier=0.25, pretrained=str(tmp_path / "tiny.yaml"))


def test_weights_that_do_not_exist_are_an_error_of_create_model():
    with pytest.raises(ValueError, match="no_such_weights"):
        zoo.create_model("resnet20", pretrained="no_such_weights")
