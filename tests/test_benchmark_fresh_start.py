"""The study of CBAM's fresh start: what its arms are, one tiny run of it, and that nothing is done twice."""

import csv

import pytest
import torch

import zoo
from benchmarks import fresh_start

STUDY = """
models: ["resnet20(width_multiplier=0.25)"]
attention: [none, cbam]
data: ["cluttered_digits(clutter=2)"]
seeds: 1
recipe:
  data: {num_images: 60, image_size: 16, digit_size: 12, batch_size: 16}
  optimization: {warmup_epochs: 0}
  trainer: {max_epochs: 2, precision: 32-true, accelerator: cpu}
"""


def make(kind, identity_start=False):
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", attention="cbam", attention_args={"identity_start": identity_start})
    fresh_start.change_gates(model, kind)
    return model.eval()


def first_gate(model):
    return model.get_submodule(model.attention_places()[0].name)


def test_each_arm_changes_one_part_of_the_fresh_gates():
    feature_map = torch.rand(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    gates = {kind: first_gate(make(kind)) for kind in ("quarter", "fresh", "still", "times four")}
    fresh = gates["fresh"](feature_map)
    assert torch.equal(gates["quarter"](feature_map), feature_map / 4)
    assert torch.equal(gates["still"](feature_map), fresh)
    assert torch.equal(gates["times four"](feature_map), 4 * fresh)
    assert not any(parameter.requires_grad for parameter in gates["still"].parameters())
    assert all(parameter.requires_grad for parameter in gates["fresh"].parameters())


def test_a_tiny_study_pairs_its_arms_and_does_nothing_twice(tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(STUDY)
    words = ["--study", str(tmp_path / "study.yaml"), "--data", "cluttered_digits(clutter=2)", "--seeds", "0"]
    words += ["--output_dir", str(tmp_path / "runs"), "--output", str(tmp_path / "rows.csv")]
    assert fresh_start.main(words) == 0
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == [arm.kind for arm in fresh_start.ARMS]
    assert all(float(row["train_loss"]) > 0 and 0 <= float(row["top1"]) <= 1 for row in rows)
    assert capsys.readouterr().out.count("seed 0") == len(rows)
    assert fresh_start.main(words) == 0
    assert "seed 0" not in capsys.readouterr().out


def test_data_that_the_study_does_not_have_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no data"):
        fresh_start.main(["--data", "cifar10", "--output_dir", str(tmp_path), "--output", str(tmp_path / "rows.csv")])
