import numpy as np
import pytest
import torch
from PIL import Image

import zoo
from zoo.explain import explain_image
from zoo.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(16, 16, (0.25,) * 3, (0.5,) * 3, resize=20)
NAMES = ["dark", "bright"]


@pytest.fixture
def image():
    pixels = np.random.default_rng(0).integers(140, 256, (40, 60, 3)).astype(np.uint8)
    return Image.fromarray(pixels)


def test_the_answer_is_explained_unless_a_class_is_named(looks_at_region, image):
    options = {"preprocessing": PREPROCESSING, "class_names": NAMES, "trust": False}
    found = explain_image(looks_at_region, image, **options)
    logits = looks_at_region(PREPROCESSING(image)[None])[0]
    assert torch.allclose(found.probabilities, logits.softmax(0))
    assert (found.class_name, found.answer, found.class_index) == ("bright", 1, 1)
    other = explain_image(looks_at_region, image, class_index=0, **options)
    assert (other.class_name, other.answer) == ("dark", 1)
    assert torch.equal(found.heatmaps["grad_cam"].values, found.heatmaps["grad_cam"].values)
    assert other.heatmaps["occlusion"].values.abs().max() == 0


def test_everything_has_its_size(looks_at_region, image):
    told = []
    found = explain_image(
        looks_at_region,
        image,
        preprocessing=PREPROCESSING,
        class_names=NAMES,
        network="net",
        title="photo",
        say=told.append,
    )
    assert found.pixels.shape == (40, 60, 3)
    assert found.placement.box == PREPROCESSING.kept_box(image)
    assert all(heatmap.size == (16, 16) for heatmap in found.heatmaps.values())
    assert list(found.trust.maps) == list(found.heatmaps)
    assert [gate.name for gate in found.gates.gates] == ["gate"]
    assert found.attention is None
    assert "grad cam" in told
    assert "how far to trust: Grad-CAM" in told


def test_the_same_seed_gives_the_same_measures(looks_at_region, image):
    first, again, other = (
        explain_image(looks_at_region, image, preprocessing=PREPROCESSING, class_names=NAMES, seed=seed).trust
        for seed in (0, 0, 1)
    )
    assert first.maps == again.maps
    assert first.chance == again.chance != other.chance


def test_mistakes_are_named(looks_at_region, image):
    def explain(**options):
        return explain_image(looks_at_region, image, **{"preprocessing": PREPROCESSING, "class_names": NAMES} | options)

    with pytest.raises(ValueError, match="there are 3 class names for 2 logits"):
        explain(class_names=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"class_index \(2\) must be from 0 to 1"):
        explain(class_index=2)
    with pytest.raises(ValueError, match=r"add it to methods \(grad_cam\) or go without"):
        explain(methods=["grad_cam"])
    with pytest.raises(ValueError, match="logits are NaN or infinite"):
        explain(preprocessing=Preprocessing(16, 16, (0.5,) * 3, (1e-38,) * 3))


def test_an_image_of_one_pixel_row_is_explained():
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", width_multiplier=0.25, num_classes=2).eval()
    found = explain_image(
        model,
        Image.new("L", (300, 1), 200),
        preprocessing=Preprocessing(32, 32, (0.5,) * 3, (0.5,) * 3, resize=32),
        class_names=NAMES,
        trust=False,
    )
    assert found.placement.to_image(found.heatmaps["occlusion"].values).shape == (1, 300)
