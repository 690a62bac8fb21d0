"""The system of captioners: its loss by hand, what it refuses, and runs through train.py that survive what happens."""

import csv
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import evaluate
import train
import zoo
from zoo.config import OptimizationConfig, parse_run_config
from zoo.data.caption_module import CaptionBatch
from zoo.models.caption_words import END, PAD, START
from zoo.training.callbacks import StopOnSignal, TrainingInterrupted
from zoo.training.captioner_system import CaptionerSystem
from zoo.training.tasks import CAPTIONING, CLASSIFICATION, find_task

SMALL = {
    "captioner_transformer": ["--model.depth", "1", "--model.num_heads", "1", "--model.embed_dim", "32"],
    "captioner_recurrent": ["--model.embed_dim", "16", "--model.hidden_dim", "16", "--model.attention_dim", "8"],
}
DATA = ["--data.name", "caption_scenes", "--data.num_images", "176", "--data.batch_size", "32"]
REST = ["--model.encoder_args", "{stem: imagenet, width_multiplier: 0.5}", "--model.encoder_stage", "1"]
REST += [
    "--optimization.optimizer",
    "adamw",
    "--optimization.ema_decay",
    "0.9",
    "--trainer.accumulate_grad_batches",
    "2",
]
REST += ["--trainer.accelerator", "cpu", "--trainer.logger", "false", "--trainer.max_epochs", "3"]


def arguments(name):
    return ["--model.name", name, *SMALL[name], *DATA, *REST]


def run_main(*words):
    assert train.main([str(word) for word in words]) == 0


def rows(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def without_times(run):
    times = ("train_seconds", "images_per_second")
    return [{key: value for key, value in row.items() if key not in times} for row in rows(run / "metrics.csv")]


def small_captioner():
    torch.manual_seed(0)
    return zoo.create_captioner(
        "captioner_recurrent", num_classes=9, max_words=3, embed_dim=8, hidden_dim=8, attention_dim=4, dropout=0.0,
        encoder_args={"width_multiplier": 0.25},
    )  # fmt: skip


def test_the_loss_is_the_mean_over_words_and_filling_counts_nowhere():
    system = CaptionerSystem(small_captioner()).eval()
    words = torch.tensor([[START, 4, 5, 6, END], [START, 7, END, PAD, PAD]])
    batch = CaptionBatch(torch.randn(2, 3, 32, 32), words, torch.arange(2))
    loss = system.training_step(batch, 0)
    log_p = torch.log_softmax(system(batch.images, words[:, :-1]), -1)
    places = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    by_hand = torch.stack([log_p[row, place, words[row, place + 1]] for row, place in places])
    torch.testing.assert_close(loss, -by_hand.mean())
    right = sum(int(log_p[row, place].argmax() == words[row, place + 1]) for row, place in places)
    assert float(system.train_token_accuracy.compute()) == pytest.approx(right / 6)


@pytest.mark.parametrize("option", [{"mixup_alpha": 0.2}, {"cutmix_alpha": 1.0}, {"class_weights": "balanced"}])
def test_options_about_labels_are_refused(option):
    with pytest.raises(ValueError, match=f"optimization.{next(iter(option))} .+ has no effect on a captioner"):
        CaptionerSystem(small_captioner(), optimization=OptimizationConfig(**option))


def test_the_names_in_a_config_decide_the_task_and_must_fit(capsys):
    assert find_task(parse_run_config(arguments("captioner_recurrent"))) is CAPTIONING
    assert find_task(parse_run_config([])) is CLASSIFICATION
    with pytest.raises(SystemExit):
        parse_run_config(["--model.name", "captioner_recurrent"])
    assert (
        "'captioner_recurrent' writes captions, but data.name 'cluttered_digits' has classes" in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        parse_run_config(["--data.name", "caption_scenes"])
    assert "'resnet20' tells classes, but data.name 'caption_scenes' has captions" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_run_config([*arguments("captioner_recurrent"), "--model.attention", "se"])
    assert "attention" in capsys.readouterr().err


@pytest.fixture(scope="module", params=list(SMALL))
def whole_run(request, tmp_path_factory):
    """A run that nothing disturbed, and its name."""
    folder = tmp_path_factory.mktemp("captions") / request.param
    run_main(*arguments(request.param), "--run_dir", folder, "--weights_dir", folder / "shared")
    return folder


def test_a_run_leaves_everything_behind(whole_run):
    result = json.loads((whole_run / "result.json").read_text())
    for name in ("exact_match", "exact_match_beam", "bleu", "token_accuracy", "grounding", "held_out_exact_match"):
        assert 0 <= result["selected_epoch"][name] <= 1
    assert 0.02 < result["last_epoch"]["grounding_chance"] < 0.3
    predictions = rows(whole_run / "test_predictions.csv")
    assert len(predictions) == 32
    assert {row["image"].split("/")[0] for row in predictions} == {"test", "held_out"}
    assert (whole_run / "learning_curves.png").exists()
    log = rows(whole_run / "metrics.csv")
    assert float(log[-1]["train_loss"]) < float(log[0]["train_loss"])
    assert result["validation"] == {row["epoch"]: pytest.approx(float(row["val_exact_match"])) for row in log}
    model, card = zoo.load_pretrained(whole_run)
    assert card.class_names[:4] == ("<pad>", "<start>", "<end>", "<unknown>")
    assert card.data["num_held_out"] == 16
    assert card.model == model.config
    assert (whole_run / f"shared/{card.model['name']}.caption_scenes.yaml").exists()


def test_a_run_that_was_interrupted_in_an_epoch_goes_on_to_the_same_bits(tmp_path, whole_run, monkeypatch, capsys):
    folder = tmp_path / "ended"
    original = StopOnSignal.on_train_batch_end

    def stop(self, trainer, pl_module, outputs, batch, batch_idx):
        original(self, trainer, pl_module, outputs, batch, batch_idx)
        if (trainer.current_epoch, batch_idx) == (1, 1):
            trainer.save_checkpoint(self.checkpoint)
            raise TrainingInterrupted(self.checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(StopOnSignal, "on_train_batch_end", stop)
        assert train.main([*arguments(whole_run.name), "--run_dir", str(folder)]) == 130
    run_main("--resume", folder)
    assert (folder / "weights.safetensors").read_bytes() == (whole_run / "weights.safetensors").read_bytes()
    assert without_times(folder) == without_times(whole_run)


@pytest.mark.parametrize("split", ["test", "held_out"])
def test_evaluation_repeats_what_the_card_says(whole_run, split, capsys):
    output = whole_run / "figures.json"
    words = ["--weights", str(whole_run), "--split", split, "--latency_batch_sizes", "[1]", "--output", str(output)]
    assert evaluate.main(words) == 0
    printed = capsys.readouterr().out
    assert "exactly what the card says of the selected epoch" in printed
    report = json.loads(output.read_text())
    prefix = "held_out_" if split == "held_out" else ""
    claim = zoo.load_pretrained(whole_run)[1].claim
    for name in ("exact_match", "bleu", "token_accuracy", "grounding"):
        assert report["metrics"][name] == pytest.approx(claim[prefix + name], abs=1e-6)
    assert report["cost"]["macs"] > 0
    assert len(report["mistakes"]) == min(10, round(16 * (1 - report["metrics"]["exact_match"])))


def test_other_splits_have_no_claim_and_other_sizes_are_refused(whole_run, capsys):
    words = ["--weights", str(whole_run), "--latency_batch_sizes", "[1]"]
    assert evaluate.main([*words, "--split", "val"]) == 0
    assert "nothing on the card to compare it with" in capsys.readouterr().out
    assert evaluate.main([*words, "--data.image_size", "64"]) == 2
    assert "gives images of 3 channels, 64 x 64 pixels, but the weights" in capsys.readouterr().err


def test_own_captions_train_and_the_shared_card_tells_no_folder_of_this_machine(tmp_path):
    content = {"images": [], "annotations": []}
    for number in range(20):
        Image.new("RGB", (20, 20), (10 * number, 90, 0)).save(tmp_path / f"{number}.png")
        content["images"].append({"id": number, "file_name": f"{number}.png"})
        content["annotations"].append({"image_id": number, "caption": "bright" if number > 10 else "dark"})
    (tmp_path / "captions.json").write_text(json.dumps(content))
    run_main(
        "--model.name", "captioner_recurrent", *SMALL["captioner_recurrent"], *REST, "--trainer.max_epochs", 1,
        "--data.name", "coco_captions", "--data.root", tmp_path, "--data.captions", tmp_path / "captions.json",
        "--data.num_workers", 0, "--data.image_size", 32, "--data.batch_size", 4,
        "--run_dir", tmp_path / "run", "--weights_dir", tmp_path / "shared",
    )  # fmt: skip
    text = (tmp_path / "shared/captioner_recurrent.coco_captions.yaml").read_text()
    assert str(tmp_path) not in text.replace(f"--weights_dir {tmp_path / 'shared'}", "")
    card = zoo.load_pretrained(tmp_path / "run")[1]
    assert "grounding" not in card.claim
    assert set(card.class_names[4:]) == {"bright", "dark"}
