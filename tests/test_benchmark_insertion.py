"""The insertion benchmark: one tiny run of it, and that the document says what the rows say."""

import csv
from pathlib import Path

import pytest

import zoo
from benchmarks import insertion
from benchmarks.documents import with_section

ROOT = Path(__file__).parent.parent


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_compares_times_and_removes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(insertion, "IMAGE_SIZE", (3, 64, 64))
    path = tmp_path / "rows.csv"
    nets = ["torchvision/resnet18", "timm/mobilenetv3_large_100"]
    insertion.main(["--nets", *nets, "--attentions", "se", "sam", "--rounds", "3", "--output", str(path)])
    rows = {(row["net"], row["attention"]): row for row in read(path)}
    assert set(rows) == {(net, attention) for net in nets for attention in ("se", "sam")}
    assert all(float(row["max_logit_difference"]) == 0 for row in rows.values())
    assert all(float(row["logit_std"]) > 0 for row in rows.values())
    row = rows["torchvision/resnet18", "se"]
    assert (row["places"], row["parameters"], row["added_parameters"]) == ("8", "11689512", "89080")
    assert rows["timm/mobilenetv3_large_100", "se"]["replaced"] == "own gates"
    assert float(row["latency_ratio_low"]) <= float(row["latency_ratio"]) <= float(row["latency_ratio_high"])
    assert "torchvision/resnet18" in capsys.readouterr().out
    summary = insertion.summarise(insertion.read_newest(path))
    assert "| torchvision/resnet18 | 8 | 11.69 M |" in summary
    assert "timm/mobilenetv3_large_100 (own gates replaced)" in summary


def test_a_difference_is_seen(monkeypatch):
    monkeypatch.setattr(insertion, "IMAGE_SIZE", (3, 32, 32))
    insert = zoo.insert_attention
    monkeypatch.setattr(
        zoo, "insert_attention", lambda *args, **options: insert(*args, identity_start=False, **options)
    )
    (row,) = insertion.measure_net(insertion.NETS[0], ["se"], rounds=3)
    assert float(row["max_logit_difference"]) > 1e-3 * float(row["logit_std"])


@pytest.mark.parametrize("name", ["resnet34", "convnext_atto"], ids=["norms from zero", "layer scales near zero"])
def test_networks_look_trained_so_that_no_branch_is_zero(name):
    (net,) = (net for net in insertion.NETS if str(net) == f"timm/{name}")
    model = net.create()
    values = [value for value in model.parameters() if value.squeeze().ndim <= 1]
    assert all(value.min() >= 0.75 for value in values)
    assert not model.training


def test_the_document_says_what_the_newest_rows_say():
    text = insertion.DOCUMENT.read_text(encoding="utf-8")
    rows = insertion.read_newest(insertion.RESULTS)
    assert {row["net"] for row in rows} == {str(net) for net in insertion.NETS}
    assert {row["attention"] for row in rows} == set(insertion.ATTENTIONS)
    assert with_section(text, insertion.SECTION, insertion.summarise(rows)) == text
    with pytest.raises(ValueError, match="there is no section between '<!-- other -->'"):
        with_section(text, "other", "")


def test_the_newest_row_of_a_pair_counts(tmp_path):
    path = tmp_path / "rows.csv"
    header, first = insertion.RESULTS.read_text().splitlines()[:2]
    changed = first.replace("torchvision/resnet18,se,,8", "torchvision/resnet18,se,,9")
    path.write_text("\n".join([header, first, changed]) + "\n")
    (row,) = insertion.read_newest(path)
    assert row["places"] == "9"
