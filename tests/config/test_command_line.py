"""The config of a run: what is accepted, what is refused and in which words, and that it reads back unchanged."""

import pytest

from zoo.config import OptimizationConfig, RunConfig, parse_run_config, suggest_option
from zoo.serialization import parse_yaml


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def refuse(arguments, capsys) -> str:
    """Parse what must be refused, and return the message: status 2, no traceback."""
    with pytest.raises(SystemExit) as left:
        parse_run_config(arguments)
    assert left.value.code == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


def test_three_names_are_enough():
    config = parse_run_config(["--model.name", "mobilenet_v2", "--model.attention", "se", "--data.name", "cifar10"])
    assert config.title == "mobilenet_v2_se"
    assert config.data["name"] == "cifar10"
    assert config.trainer["max_epochs"] == 15
    assert config.optimization.peak_lr == 0.1


def test_a_saved_config_is_accepted_back_unchanged(tmp_path):
    arguments = ["--model.attention", "cbam", "--model.attention_args.reduction_ratio", "8", "--data.clutter", "7"]
    arguments += ["--optimization.class_weights", "balanced", "--trainer.precision", "32-true", "--seed", "3"]
    config = parse_run_config(arguments)
    assert config.model["attention_args"] == {"reduction_ratio": 8}
    again = parse_run_config(["--config", write(tmp_path / "config.yaml", config.to_yaml())])
    assert again == config
    assert again.to_yaml() == config.to_yaml()


def test_command_line_overrides_the_file_and_options_follow_the_names_in_it(tmp_path):
    text = "model: {name: resnet32}\ndata: {name: cifar100, cutout: 8}\nseed: 5\n"
    config = parse_run_config(["--config", write(tmp_path / "a.yaml", text), "--data.cutout=16", "--seed", "6"])
    assert (config.model["name"], config.data["name"], config.data["cutout"], config.seed) == (
        "resnet32",
        "cifar100",
        16,
        6,
    )


@pytest.mark.parametrize("text", ["1e-4", "1.0e-4", "0.0001", "1E-4"])
def test_a_number_without_a_dot_is_a_number(tmp_path, text):
    file = write(tmp_path / "a.yaml", f"optimization:\n  peak_lr: {text}\n")
    assert parse_run_config(["--config", file]).optimization.peak_lr == 1e-4
    assert parse_run_config([f"--optimization.peak_lr={text}"]).optimization.peak_lr == 1e-4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("modle: {name: resnet20}", "Did you mean 'model"),
        ("optim: {learning-rate: 0.1}", "Did you mean 'optimization.peak_lr'"),
        ("peak_lr: 0.1", "Did you mean 'optimization.peak_lr'"),
        ("optimization: {peak-lr: 0.1}", "Did you mean 'optimization.peak_lr'"),
        ("data: {position_jiter: 0.1}", "Did you mean 'data.position_jitter'"),
        ("trainer: {max_epoch: 3}", "Did you mean 'trainer.max_epochs'"),
        ("optimization: {peak_lr: fast}", "optimization.peak_lr"),
        ("optimization: {peak_lr: 1}\noptimization: {peak_lr: 2}", "line 2: found duplicate key"),
        ("optimization:\n", "section 'optimization' holds None; fill it or remove it"),
        ("\tseed: 1", "line 1"),
        ("", "must hold sections"),
        ("# only a comment\n", "must hold sections"),
        ("model: {name: mobilenetv2}", "Did you mean 'mobilenet_v2'"),
        ("model: {attention: cbma}", "Did you mean 'cbam'"),
        ("model: {attention: se, attention_args: {ratio: 4}}", "ratio"),
        ("model: {attention: se, attention_args: {reduction_ratio: 0.0625}}", "0.0625"),
        ("model: {attention_args: {reduction_ratio: 4}}", "no effect"),
        ("data: {name: cifar01}", "Did you mean 'cifar10'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, capsys, text, expected):
    assert expected in refuse(["--config", write(tmp_path / "a.yaml", text)], capsys)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--optimization.peak", "3"], "optimization.peak"),  # no abbreviation
        (["--optimization.peak_lrx", "3"], "Did you mean 'optimization.peak_lr'"),
        (["--optimization.optimizer", "sgdd"], "sgdd"),
        (["--optimization.peak_lr", "-1"], "above 0"),
        (["--optimization.betas", "[0.9, 0.99]"], "no effect on optimizer 'sgd'"),
        (["--data.root", "x"], "data.root"),  # cluttered_digits needs none
        (["--trainer.default_root_dir", "x"], "default_root_dir"),  # run_dir decides
        (["--config", "absent.yaml"], "does not exist"),
        (["--seed", "1.5"], "seed"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_named(capsys, arguments, expected):
    assert expected in refuse(arguments, capsys)


def test_print_config_shows_a_config_that_can_be_used(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        parse_run_config(["--model.attention", "se", "--print_config"])
    assert left.value.code == 0
    file = write(tmp_path / "printed.yaml", capsys.readouterr().out)
    assert parse_run_config(["--config", file]) == parse_run_config(["--model.attention", "se"])


def test_a_config_is_frozen():
    config = parse_run_config([])
    with pytest.raises(AttributeError):
        config.seed = 1
    with pytest.raises(AttributeError):
        config.optimization.peak_lr = 1


def test_defaults_follow_the_optimizer():
    sgd, adamw = OptimizationConfig(), OptimizationConfig(optimizer="adamw")
    assert (sgd.momentum, sgd.nesterov, sgd.betas) == (0.9, True, None)
    assert (adamw.momentum, adamw.betas, adamw.peak_lr) == (None, [0.9, 0.999], 1e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"peak_lr": 0.0},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"momentum": 0.0},  # nesterov needs some
        {"label_smoothing": 1.0},
        {"ema_decay": 1.0},
        {"attention_lr_multiplier": 0.0},
        {"gates_first_epochs": -1},
        {"mixup_alpha": -0.1},
        {"cutmix_alpha": -0.1},
        {"final_lr_fraction": 1.5},
        {"warmup_epochs": -1.0},
        {"class_weights": [0.0, 0.0]},
        {"optimizer": "adamw", "betas": [0.9]},
        {"optimizer": "adamw", "momentum": 0.9},
    ],
)
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=r"optimization\."):
        OptimizationConfig(**wrong)


def test_the_text_of_a_config_is_plain_yaml():
    values = parse_yaml(RunConfig(model={"name": "resnet20"}, data={"name": "cifar10"}).to_yaml())
    assert values["optimization"]["optimizer"] == "sgd"
    assert values["seed"] == 0


def test_suggestions_prefer_the_same_leaf():
    options = ["optimization.peak_lr", "trainer.max_epochs", "seed"]
    assert suggest_option("epochs", options) == "Did you mean 'trainer.max_epochs'?"
    assert suggest_option("zzzz", options) == ""
