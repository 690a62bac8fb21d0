import pytest
import torch

import zoo
from zoo.comparison.choices import Choice
from zoo.comparison.study import Study, merge, parse_run_options, read_study, study_from_options
from zoo.data import create_data
from zoo.provenance import ROOMS_ABOVE_TRAINING

STUDY = """
name: digits
models:
  - resnet20
  - {name: mobilenet_v2, width_multiplier: 0.25}
attention:
  - none
  - se
  - {name: cbam, reduction_ratio: 4, models: [resnet20]}
data: [cluttered_digits]
seeds: 2
recipe:
  data: {num_images: 120, clutter: 3}
  optimization: {peak_lr: 1e-2}
  trainer: {max_epochs: 2}
"""


@pytest.fixture
def write_study(tmp_path):
    def write(text, name="digits.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_file_becomes_ordinary_runs_seed_by_seed(write_study, tmp_path):
    plans = read_study(write_study(STUDY)).plans(tmp_path / "runs")
    cells = ["resnet20+none", "resnet20+se", "resnet20+cbam(reduction_ratio=4)"]
    cells += ["mobilenet_v2(width_multiplier=0.25)+none", "mobilenet_v2(width_multiplier=0.25)+se"]
    assert [(plan.cell.title, plan.config.seed) for plan in plans] == [
        (cell, seed) for seed in (0, 1) for cell in cells
    ]
    config = plans[2].config
    assert (config.model["attention"], config.model["attention_args"]) == ("cbam", {"reduction_ratio": 4})
    assert (config.data["num_images"], config.data["clutter"]) == (120, 3)
    assert (config.optimization.peak_lr, config.trainer["max_epochs"]) == (0.01, 2)
    assert config.run_dir == str(plans[2].folder)
    assert plans[3].config.model["width_multiplier"] == 0.25
    assert len({plan.folder for plan in plans}) == len(plans)


def test_runs_differ_in_model_attention_data_seed_and_folder_alone(write_study, tmp_path):
    plans = read_study(write_study(STUDY)).plans(tmp_path)
    shared = [
        {key: value for key, value in plan.config.to_dict().items() if key not in ("model", "seed", "run_dir")}
        for plan in plans
    ]
    assert all(values == shared[0] for values in shared)


def test_the_command_line_and_a_file_give_equal_studies(write_study):
    text = STUDY.replace(", models: [resnet20]", "")
    words = ["--data.num_images", "120", "--data.clutter=3", "--optimization.peak_lr", "1e-2"]
    study = study_from_options(
        models="resnet20, mobilenet_v2(width_multiplier=0.25)",
        attention="none,se,cbam(reduction_ratio=4)",
        data="cluttered_digits",
        seeds="2",
        name="digits",
        options=[*words, "--trainer.max_epochs", "2"],
    )
    assert study == read_study(write_study(text))
    assert [plan.config for plan in study.plans("x")] == [
        plan.config for plan in read_study(write_study(text)).plans("x")
    ]


def test_variants_of_the_data_stand_in_the_cells_and_their_options_before_the_recipes(write_study):
    text = STUDY.replace("[cluttered_digits]", "['cluttered_digits(clutter=0)', cluttered_digits]")
    plans = read_study(write_study(text)).plans("runs")
    assert plans[0].cell.title == "resnet20+none @ cluttered_digits(clutter=0)"
    assert [plan.config.data["clutter"] for plan in plans[:10]] == [0] * 5 + [3] * 5


def test_seeds_are_a_count_or_a_list(write_study):
    assert read_study(write_study(STUDY.replace("seeds: 2", "seeds: [7, 5]"))).seeds == (7, 5)
    grid = {"models": "resnet20", "attention": "none,se", "data": "cluttered_digits"}
    assert study_from_options(**grid, seeds="3").seeds == (0, 1, 2)
    study = study_from_options(**grid, seeds="4,9")
    assert (study.seeds, study.name) == ((4, 9), "cluttered_digits_resnet20")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("models:", "modles:", "digits.yaml: unknown key 'modles'. Did you mean 'models'"),
        ("  - none\n", "", "attention lacks 'none', the plain net"),
        ("- none\n", "- none\n  - none\n", "attention: none stands twice"),
        ("- resnet20\n", "- resnet20\n  - resnet20\n", "models: resnet20 stands twice"),
        ("seeds: 2", "seeds: [1, 1]", "seeds: 1 stands twice"),
        ("seeds: 2", "seeds: 0", "needs at least one seed"),
        ("seeds: 2", "seeds: [-1]", "must be a count, or a list of integers"),
        ("seeds: 2", "seeds: true", "must be a count, or a list of integers"),
        ("seeds: 2\n", "", "digits.yaml: lacks seeds"),
        ("seeds: 2", "seeds: 2\nseeds: 3", "digits.yaml, line"),
        ("[resnet20]", "[resnet56]", "no model of the study is 'resnet56'"),
        ("name: digits", "name: a/b", "must be of letters"),
        ("trainer: {max_epochs: 2}", "seed: 3", "recipe: 'seed' has no place in a study"),
        ("trainer: {max_epochs: 2}", "trainer:", "section 'trainer' holds None"),
        ("trainer: {max_epochs: 2}", "model: {attention: se}", "model.attention has no effect"),
        ("{num_images: 120,", "{name: cifar10,", "data.name has no effect"),
    ],
)
def test_a_study_that_contradicts_itself_is_refused(write_study, old, new, message):
    assert old in STUDY
    with pytest.raises(ValueError, match=message):
        read_study(write_study(STUDY.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_epochs", "max_epoch", "max_epoch.* Did you mean 'trainer.max_epochs'"),
        ("1e-2", "fast", "optimization.peak_lr"),
        ("reduction_ratio", "reduction", "resnet20\\+cbam.*unknown option 'reduction'"),
        ("- resnet20\n", "- resnet21\n", "unknown model 'resnet21'"),
        ("- se\n", "- sse\n", "unknown attention 'sse'. Did you mean 'se'"),
        ("clutter: 3", "clutttter: 3", "Did you mean 'data.clutter'"),
    ],
)
def test_a_misspelt_option_of_a_run_is_refused_with_the_cell_and_the_nearest_name(write_study, old, new, message):
    text = STUDY.replace(", models: [resnet20]", "").replace(old, new, 1)
    with pytest.raises(ValueError, match=message) as error:
        read_study(write_study(text)).plans("runs")
    assert "study 'digits'" in str(error.value)


def test_a_base_config_gives_the_recipe_and_nothing_of_the_grid(write_study, tmp_path):
    base = "model: {name: resnet56}\ndata: {name: cifar10, batch_size: 32}\ntrainer: {max_epochs: 9}\nseed: 4\n"
    base += "compile: true\n"
    (tmp_path / "base.yaml").write_text(base)
    study = read_study(write_study(STUDY + "base: base.yaml\n"))
    assert study.recipe["data"] == {"batch_size": 32, "num_images": 120, "clutter": 3}
    assert (study.recipe["trainer"], study.recipe["compile"]) == ({"max_epochs": 2}, True)
    assert not {"model", "seed"} & set(study.recipe)
    (tmp_path / "base.yaml").write_text(base.replace("resnet56", "resnet56, width_multiplier: 0.5"))
    with pytest.raises(ValueError, match="gives the model width_multiplier; say that beside the study's models"):
        read_study(write_study(STUDY + "base: base.yaml\n"))
    with pytest.raises(ValueError, match=r"nowhere\.yaml does not exist"):
        read_study(write_study(STUDY + "base: nowhere.yaml\n"))


@pytest.mark.parametrize("content", ["", "- a\n", "study\n"])
def test_a_file_that_holds_something_else_is_refused(write_study, content, tmp_path):
    with pytest.raises(ValueError, match="must hold name, models"):
        read_study(write_study(content))
    with pytest.raises(ValueError, match=r"none\.yaml does not exist"):
        read_study(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trainer.max_epochs"], "needs a value"),
        (["5"], "stands behind no option"),
        (["--a.b", "1", "--a.b", "2"], "--a.b is given twice"),
        (["--a.b", "1", "--a.b.c", "2"], "'b' has a value already"),
    ],
)
def test_options_of_the_command_line_are_checked(words, message):
    with pytest.raises(ValueError, match=message):
        parse_run_options(words)


def test_values_of_the_command_line_are_those_of_yaml():
    words = ["--a.b", "1e-4", "--a.c=no", "--a.d", "[1, 2]", "--a.e", "true", "--a.f", "-1"]
    assert parse_run_options(words) == {"a": {"b": 1e-4, "c": "no", "d": [1, 2], "e": True, "f": -1}}
    assert merge({"a": {"b": 1}, "c": 2}, {"a": 3}) == {"a": 3, "c": 2}


def test_two_titles_of_one_folder_are_refused():
    models = (Choice("resnet20", {"width_multiplier": 0.5}), Choice("resnet20", {"width_multiplier": "0.5"}))
    with pytest.raises(ValueError, match="stands twice"):
        Study("x", models, (Choice("none"),), (Choice("cluttered_digits"),), (0,)).plans("runs")


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small"])
def test_with_one_seed_the_plain_parameters_start_equal_under_every_attention(name):
    def start(attention):
        torch.manual_seed(3)
        return zoo.create_model(name, attention=attention, num_classes=10).state_dict()

    plain = start("none")
    for attention in zoo.list_attention():
        gated = start(attention)
        assert all(torch.equal(gated[key], value) for key, value in plain.items()), attention


def test_with_one_seed_the_order_of_images_is_shared_and_with_another_it_is_not():
    def order(seed):
        data = create_data("cluttered_digits", num_images=120, batch_size=16, shuffle_seed=seed)
        return [batch.labels.tolist() for batch in data.train_dataloader()]

    assert order(0) == order(0)
    assert order(0) != order(1)


def test_this_room_has_no_part_in_the_code_digest():
    assert "comparison" in ROOMS_ABOVE_TRAINING
