"""Sheet, page and arrays of one answer."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

import zoo
from zoo.explain import explain_image, write_explanation
from zoo.explain.writing import file_stem
from zoo.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(32, 32, (0.5,) * 3, (0.5,) * 3, resize=36)
NAMES = ["cat & <b>dog", "truck", "ship"]


def explain(kind, **options):
    torch.manual_seed(0)
    if kind == "vit":
        sizes = {"embed_dim": 64, "num_heads": 2, "depth": 2, "num_registers": 1}
        model = zoo.create_model("vit_tiny_patch4_32", num_classes=3, **sizes)
    else:
        attention = None if kind == "plain" else kind
        stages = {} if attention is None else {"attention_stages": [3]}
        model = zoo.create_model("resnet20", num_classes=3, attention=attention, width_multiplier=0.25, **stages)
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3)).astype(np.uint8)
    names = {"preprocessing": PREPROCESSING, "class_names": NAMES, "network": "net", "title": "a <photo>"}
    return explain_image(model.eval(), Image.fromarray(pixels), **names, **options)


@pytest.mark.parametrize(("kind", "pictures"), [("plain", 2), ("se", 3), ("cbam", 4), ("vit", 3)])
def test_the_page_shows_what_the_network_has_and_needs_nothing_else(tmp_path, kind, pictures):
    sheet, page, arrays = write_explanation(explain(kind, trust=False), tmp_path / "new", "x")
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r'<img alt="[^"]+" src="data:image/png;base64,', text)) == pictures
    assert "http" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    assert "<photo>" not in text
    assert "a &lt;photo&gt;: net says " in text
    with Image.open(sheet) as image:
        assert image.size[0] == 1400
        assert image.size[1] > 600
    with np.load(arrays, allow_pickle=False) as stored:
        kinds = {name.split(".")[0] for name in stored}
        expected = {"plain": set(), "se": {"gate"}, "cbam": {"gate"}, "vit": {"attention"}}[kind]
        assert kinds == {"probabilities", "box", "map"} | expected
        assert stored["map.occlusion"].shape == (32, 32)
        assert stored["box"].tolist() == pytest.approx(PREPROCESSING.kept_box(Image.new("RGB", (70, 50))))
        if kind == "vit":
            assert stored["attention.blocks.1.attention"].shape == (2, 66, 66)


def test_trust_stands_on_the_sheet_and_on_the_page(tmp_path):
    explanation = explain("cbam", methods=["grad_cam", "integrated_gradients"])
    sheet, page, _ = write_explanation(explanation, tmp_path, "x")
    text = page.read_text(encoding="utf-8")
    for words in (
        "What this allows one to conclude",
        "How far to trust this",
        "laid elsewhere",
        "after all layers were",
    ):
        assert words in text
    assert f"{explanation.trust.maps['grad_cam'].curves.deletion_area:.3f}" in text
    assert "cat &amp; &lt;b&gt;dog" in text or "truck" in text
    plain = write_explanation(explain("cbam", methods=["grad_cam", "integrated_gradients"], trust=False), tmp_path, "y")
    with Image.open(sheet) as with_trust, Image.open(plain[0]) as without:
        assert with_trust.size[1] > without.size[1] + 300


def test_names_of_files_are_safe_and_never_taken_twice():
    taken = set()
    names = [file_stem(path, taken) for path in ("a/Ü b.jpg", "b/Ü b.png", "A/ü B.gif", "x/..", "y.png")]
    assert len({name.lower() for name in names}) == 5
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_names_that_look_like_formulas_are_drawn_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "NAMES", ["$5_$", "$^10$", "$_{$"])
    sheet, page, _ = write_explanation(explain("se", trust=False), tmp_path, "x")
    assert sheet.exists()
    assert any(f"says {name}" in page.read_text(encoding="utf-8") for name in NAMES)
