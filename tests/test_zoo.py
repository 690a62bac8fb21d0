"""The package itself: its public names, what importing it costs, weights through create_model."""

import subprocess
import sys

import pytest

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


def test_weights_that_do_not_exist_are_an_error_of_create_model():
    with pytest.raises(ValueError, match="no_such_weights"):
        zoo.create_model("resnet20", pretrained="no_such_weights")
