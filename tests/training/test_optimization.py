"""Weight-decay groups, the schedule, and the moving average of weights."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import zoo
from zoo.config import OptimizationConfig
from zoo.training.optimization import create_optimizer, ema_average, split_by_decay, warmup_cosine


def test_norms_and_biases_do_not_decay():
    model = zoo.create_model("resnet20", attention="cbam")
    decayed, undecayed = split_by_decay(model.named_parameters())
    norms = [
        parameter
        for module in model.modules()
        if isinstance(module, nn.BatchNorm2d)
        for parameter in module.parameters()
    ]
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert {id(parameter) for parameter in norms + biases} == {id(parameter) for parameter in undecayed}
    assert len(decayed) + len(undecayed) == len(list(model.parameters()))


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_tokens_and_positions_of_a_transformer_do_not_decay_either(positions):
    tiny = {"embed_dim": 32, "depth": 1, "num_heads": 1, "layer_scale": 0.1, "num_registers": 2}
    model = zoo.create_model("vit_tiny_patch4_32", positions=positions, **tiny)
    decayed, undecayed = split_by_decay(model.named_parameters())
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    assert [id(parameter) for parameter in decayed] == [id(parameter) for parameter in matrices]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    spared = {names[id(parameter)] for parameter in undecayed}
    assert {"class_token", "registers", "blocks.0.layer_scale1.scale", "blocks.0.norm1.weight"} < spared
    assert {name for name in spared if name.startswith("positions.")} == {
        "learned": {"positions.grid", "positions.prefix"},
        "relative": {"positions.table", "positions.prefix"},
    }[positions]
    assert len(decayed) + len(undecayed) == len(names)


def test_optimizers_get_the_groups_and_values_of_the_config():
    model = nn.Linear(3, 2)
    sgd = create_optimizer(model, OptimizationConfig(peak_lr=0.3, weight_decay=0.01))
    assert [(group["weight_decay"], group["lr"], group["nesterov"]) for group in sgd.param_groups] == [
        (0.01, 0.3, True),
        (0.0, 0.3, True),
    ]
    adamw = create_optimizer(model, OptimizationConfig(optimizer="adamw", betas=[0.8, 0.9]))
    assert adamw.param_groups[0]["betas"] == (0.8, 0.9)
    assert adamw.param_groups[0]["weight_decay"] == 0.05


def test_frozen_parameters_are_left_out_and_nothing_to_train_is_an_error():
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    assert sum(len(group["params"]) for group in create_optimizer(model, OptimizationConfig()).param_groups) == 1
    model.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameter"):
        create_optimizer(model, OptimizationConfig())


def test_schedule_rises_to_the_peak_and_falls_along_a_cosine():
    rates = [warmup_cosine(step, num_steps=100, warmup_steps=10, final_fraction=0.1) for step in range(101)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10] == 1
    assert rates[55] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert all(earlier >= later for earlier, later in pairwise(rates[9:]))
    assert warmup_cosine(0, num_steps=1, warmup_steps=0) == 1


def test_average_after_many_updates_moves_little_and_its_counter_is_saved():
    """Decay min(0.999, (1 + t) / (10 + t)): after 500 updates a step of 1 moves the average by 1 - 501/510."""
    model = nn.Linear(1, 1, bias=False)
    average = AveragedModel(model, avg_fn=ema_average(0.999), use_buffers=True)
    with torch.no_grad():
        model.weight.fill_(2.0)
        for _ in range(500):
            average.update_parameters(model)
        resumed = AveragedModel(nn.Linear(1, 1, bias=False), avg_fn=ema_average(0.999), use_buffers=True)
        resumed.load_state_dict(average.state_dict())
        model.weight += 1.0
        resumed.update_parameters(model)
    assert resumed.module.weight.item() - 2.0 == pytest.approx(1 - 501 / 510, rel=1e-3)


def test_average_of_statistics_and_counters():
    norm = nn.BatchNorm1d(1)
    average = AveragedModel(norm, avg_fn=ema_average(0.5), use_buffers=True)
    average.update_parameters(norm)
    norm.running_mean.fill_(1.0)
    norm.num_batches_tracked.fill_(7)
    average.update_parameters(norm)
    assert average.module.running_mean.item() == pytest.approx(1 - 2 / 11)
    assert average.module.num_batches_tracked.item() == 7


def test_rates_are_finite_for_every_length():
    for num_steps in range(1, 6):
        for warmup_steps in range(num_steps + 1):
            rates = [warmup_cosine(step, num_steps=num_steps, warmup_steps=warmup_steps) for step in range(num_steps)]
            assert all(math.isfinite(rate) and 0 <= rate <= 1 for rate in rates)


def test_gates_get_their_own_learning_rate_and_every_parameter_is_in_one_group():
    model = zoo.create_model("resnet20", attention="se")
    optimizer = create_optimizer(model, OptimizationConfig(peak_lr=0.1, attention_lr_multiplier=5))
    rate_of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert rate_of[id(parameter)] == pytest.approx(0.5 if ".attention." in name else 0.1), name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    with pytest.raises(ValueError, match="gate"):
        create_optimizer(zoo.create_model("resnet20"), OptimizationConfig(attention_lr_multiplier=5))
