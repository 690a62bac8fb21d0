import json
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch import nn

from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.predictions import Predictions, choose_device, evaluation_mode, gather_predictions, predict_dataset


class Batch(NamedTuple):
    images: torch.Tensor
    labels: torch.Tensor
    indices: torch.Tensor


def make_loader(order: list[int], batch_size: int = 2) -> list[Batch]:
    """Image ``i`` is a constant map of value ``i`` with label ``i mod 3``."""
    indices = torch.tensor(order)
    images = indices.float().reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    parts = zip(images.split(batch_size), (indices % 3).split(batch_size), indices.split(batch_size), strict=True)
    return [Batch(*part) for part in parts]


class FirstPixel(nn.Module):
    """Logits ``(v, 2 v, 3 v)`` of an image whose first pixel is ``v``."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, 0, 0, :1] * torch.tensor([1.0, 2.0, 3.0])


def test_rows_come_back_in_the_order_of_the_indices_whatever_the_order_of_the_loader() -> None:
    predictions = predict_dataset(FirstPixel(), make_loader([3, 0, 4, 1, 2]), lambda batch: batch)
    assert predictions.indices.tolist() == [0, 1, 2, 3, 4]
    assert predictions.targets.tolist() == [0, 1, 2, 0, 1]
    assert predictions.logits.tolist() == [[i, 2.0 * i, 3.0 * i] for i in range(5)]


def test_images_pass_through_prepare() -> None:
    predictions = predict_dataset(
        FirstPixel(), make_loader([0, 1]), lambda batch: batch._replace(images=batch.images + 10)
    )
    assert predictions.logits[:, 0].tolist() == [10, 11]


def test_an_index_that_comes_twice_counts_once() -> None:
    predictions = predict_dataset(FirstPixel(), make_loader([0, 1, 2, 0, 1]), lambda batch: batch)
    assert predictions.indices.tolist() == [0, 1, 2]


def test_a_last_short_batch_and_a_batch_of_one_are_kept() -> None:
    predictions = predict_dataset(FirstPixel(), make_loader([0, 1, 2, 3, 4], batch_size=4), lambda batch: batch)
    assert predictions.logits.shape == (5, 3)


def test_model_is_in_eval_mode_and_leaves_it_as_it_was_part_by_part() -> None:
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), nn.Flatten())
    model.train()
    model[0].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loader = make_loader(list(range(6)))
    first = predict_dataset(model, loader, lambda batch: batch)
    second = predict_dataset(model, loader, lambda batch: batch)
    assert torch.equal(first.logits, second.logits)
    assert (model.training, model[0].training, model[1].training) == (True, False, True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_modes_return_after_an_error_too() -> None:
    model = nn.Dropout()
    with pytest.raises(KeyError), evaluation_mode(model):
        raise KeyError
    assert model.training


def test_no_graph_is_kept() -> None:
    predictions = predict_dataset(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), make_loader([0, 1]), lambda batch: batch
    )
    assert not predictions.logits.requires_grad


def test_logits_of_a_bf16_pass_are_float32_and_differ_from_fp32() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    exact = predict_dataset(model, make_loader([1, 2, 3]), lambda batch: batch).logits
    rough = predict_dataset(model, make_loader([1, 2, 3]), lambda batch: batch, precision="bf16").logits
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)


def test_unknown_precision_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"precision \('bf61'\) must be one of fp32, bf16, fp16"):
        predict_dataset(FirstPixel(), make_loader([0]), lambda batch: batch, precision="bf61")  # type: ignore[arg-type]


def test_an_empty_loader_is_an_error_and_no_result() -> None:
    with pytest.raises(ValueError, match="gives no image"):
        predict_dataset(FirstPixel(), [], lambda batch: batch)


def test_gathering_in_one_process_only_sorts() -> None:
    local = Predictions(torch.tensor([[1.0], [0.0]]), torch.tensor([1, 0]), torch.tensor([1, 0]))
    assert gather_predictions(local).logits.tolist() == [[0.0], [1.0]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none_is_a_clear_error() -> None:
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="finds no CUDA device"):
        choose_device("cuda")


FOUR_PROCESSES = """
import json
import sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from zoo.evaluation.predictions import Predictions, gather_predictions

SHARDS = ([0, 4, 8, 1, 5], [1, 5, 9, 2], [2, 6, 3, 7], [])


def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    indices = torch.tensor(SHARDS[rank], dtype=torch.long)
    targets = indices % 2
    answers = torch.where(indices < 2, 1 - targets, targets)
    logits = torch.nn.functional.one_hot(answers, 2).float() if len(indices) else torch.zeros(0, 0)
    gathered = gather_predictions(Predictions(logits, targets, indices))
    Path(folder, f"rank{rank}.json").write_text(json.dumps([part.tolist() for part in gathered]))
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.start_processes(work, args=(sys.argv[1],), nprocs=4, start_method="fork")
"""


def test_four_processes_with_repeats_and_an_idle_one_give_exactly_the_accuracy_of_one(tmp_path) -> None:
    script = tmp_path / "four_processes.py"
    script.write_text(FOUR_PROCESSES)
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        parts = json.loads((tmp_path / f"rank{rank}.json").read_text())
        gathered = Predictions(*map(torch.tensor, parts))
        assert gathered.indices.tolist() == list(range(10))
        metrics = compute_metrics(gathered, ["even", "odd"])
        assert (metrics["num_images"], metrics["top1"]) == (10, 0.8)


def test_accuracy_of_a_dataset_equals_the_count_by_hand() -> None:
    predictions = predict_dataset(FirstPixel(), make_loader(list(range(7))), lambda batch: batch)
    # Image 0 has equal logits, so class 0, which is right; all others get class 2, right for 2 and 5.
    assert compute_metrics(predictions, ["a", "b", "c"])["top1"] == 3 / 7
