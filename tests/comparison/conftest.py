"""Made-up studies: seeded answers of nets whose true accuracy is known."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from zoo.comparison.results import COST_TYPES, EPOCH_TYPES, RUN_TYPES, StudyResults, empty_cost

HARDWARE = json.dumps({"processor": "Test processor", "num_cores": 2, "accelerator": None, "system": "Linux"})
VERSIONS = json.dumps({"python": "3.11.7", "torch": "2.14.1", "lightning": "2.6.6", "zoo": "0.1.0"})


def _run(model, attention, data, seed, predictions, labels, several):
    top1 = float(np.mean(predictions == labels))
    return {
        "cell": f"{model}+{attention}" + (f" @ {data}" if several else ""), "model": model, "attention": attention,
        "data": data, "seed": seed, "selected_epoch": 4, "selected_top1": top1, "last_epoch": 5,
        "last_top1": top1 - 0.001, "validation_top1": 0.8, "nll": 0.5, "ece": 0.02, "parameters": 1000 + len(attention),
        "macs": 2_000_000, "train_seconds": 60.0, "images_per_second": 500.0, "precision": "32-true",
        "code_digest": "c" * 64, "data_digest": "d" * 64, "commit": "a1b2c3d4e5f6", "dirty": False,
        "versions": VERSIONS, "hardware": HARDWARE, "command": "python -m zoo.training", "config": "seed: 0\n",
        "predictions": predictions.astype(np.uint8),
    }  # fmt: skip


@pytest.fixture
def make_results():
    """Return a function that makes a study: accuracy per attention, and who has which seeds."""

    def make(
        accuracy, *, models=("resnet20",), data=("toy",), seeds=(0, 1, 2), num_images=400, missing=(), cost=True,
        class_names=("cat", "dog", "owl", "fox"), name="toy_study",
    ):  # fmt: skip
        generator = np.random.default_rng(0)
        labels = (np.arange(num_images) % len(class_names)).astype(np.uint8)
        runs, epochs, costs = [], [], []
        for data_name in data:
            for model in models:
                hard = generator.random((len(seeds), num_images))  # the same images are hard for all nets of a seed
                for number, (attention, share) in enumerate(accuracy.items()):
                    for draws, seed in zip(hard, seeds, strict=True):
                        if (model, attention, seed) in missing:
                            continue
                        draws = draws + generator.normal(0, 0.05, num_images)
                        right = draws < share
                        wrong = (labels + 1 + generator.integers(len(class_names) - 1, size=num_images)) % len(
                            class_names
                        )
                        predictions = np.where(right, labels, wrong)
                        run = _run(model, attention, data_name, seed, predictions, labels, len(data) > 1)
                        runs.append(run)
                        epochs += [
                            (run["cell"], seed, epoch, 2.0 / epoch, 0.1 * epoch, 2.1 / epoch, share * epoch / 5)
                            for epoch in range(1, 6)
                        ]
                    if cost and any(run["cell"] == runs[-1]["cell"] for run in runs):
                        values = {
                            key: {"string": "x", "int64": 3, "double": 1.0}[str(t)] for key, t in COST_TYPES.items()
                        }
                        values |= {"cell": runs[-1]["cell"], "model": model, "attention": attention}
                        values |= {"hardware": HARDWARE, "versions": VERSIONS, "commit": "a1b2c3d4e5f6", "threads": 1}
                        values |= {"latency_ms_batch1": 3.0 + number + 2 * models.index(model)}
                        values |= {"latency_ratio_batch1": 1 + 0.1 * number, "train_rate_ratio": 1 - 0.1 * number}
                        costs.append(values)
        return StudyResults(
            name=name,
            class_names=tuple(class_names),
            labels=labels,
            runs=pd.DataFrame(runs, columns=[*RUN_TYPES, "predictions"]),
            cost=pd.DataFrame(costs) if cost else empty_cost(),
            epochs=pd.DataFrame(epochs, columns=["cell", "seed", *EPOCH_TYPES]),
        )

    return make


@pytest.fixture
def finish():
    """Return a function that fills the folder of a planned run."""

    def finish(plan, predictions, class_names, labels, code_digest="c", data_digest="d"):
        """Leave behind what a run of three epochs leaves."""
        plan.folder.mkdir(parents=True)
        (plan.folder / "config.yaml").write_text(plan.config.to_yaml())
        top1 = float(np.mean(predictions == labels))
        epoch = {"epoch": 2, "top1": top1, "nll": 0.7, "ece": 0.03}
        result = {
            "selected_epoch": epoch,
            "last_epoch": {**epoch, "epoch": 3, "top1": top1 / 2},
            "validation": {"1": 0.2, "2": 0.6, "3": 0.5},
            "cost": {"parameters": 5, "macs": 6, "train_seconds": 7.5, "train_images_per_second": 8.5},
            "precision": "32-true",
            "hardware": {"processor": "x"},
            "versions": {"torch": "2"},
            "commit": {"id": "abc", "dirty": True},
            "code_digest": code_digest,
            "data_digest": data_digest,
            "command": f"python -m zoo.training --config {plan.config_file}",
        }
        (plan.folder / "result.json").write_text(json.dumps(result))
        with (plan.folder / "test_predictions.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["image", "label", "prediction"])
            writer.writerows(["x", class_names[a], class_names[b]] for a, b in zip(labels, predictions, strict=True))
        (plan.folder / "metrics.csv").write_text("epoch,train_loss,val_top1\n1,2.0,0.2\n2,1.5,\n")

    return finish
