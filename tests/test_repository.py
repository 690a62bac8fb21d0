"""The repository as a whole: configs, names, sizes, documents."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import zoo
from zoo.comparison.study import read_study
from zoo.config import parse_run_config
from zoo.data import list_caption_data, list_data
from zoo.data.caption_module import CaptionBatch
from zoo.training.captioner_system import CaptionerSystem
from zoo.training.image_classifier import create_mixing
from zoo.training.loss import MixedTargetCrossEntropy
from zoo.training.optimization import create_optimizer

ROOT = Path(__file__).parent.parent
STUDIES = sorted((ROOT / "configs" / "studies").glob("*.yaml"))
CONFIGS = sorted(set((ROOT / "configs").rglob("*.yaml")) - set(STUDIES))
CAPTION_CONFIGS = [path for path in CONFIGS if path.parent.name in list_caption_data()]
CLASS_CONFIGS = [path for path in CONFIGS if path not in CAPTION_CONFIGS]
NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "cluttered_digits": 10, "imagenet": 1000, "image_folder": 7}


def tracked_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("path", CLASS_CONFIGS, ids=lambda path: path.relative_to(ROOT / "configs").as_posix())
def test_config_is_parsed_built_and_stepped(path):
    """One step of every config as it stands, on random images of its size and number of classes."""
    config = parse_run_config(["--config", str(path)])
    assert path.stem == config.title
    assert path.parent.name == config.data["name"]
    num_classes = NUM_CLASSES[config.data["name"]]
    torch.manual_seed(0)
    model = zoo.create_model(**config.model, num_classes=num_classes)
    optimizer = create_optimizer(model, config.optimization)
    size = min(int(config.data.get("image_size", 32)), 64)
    images, labels = torch.randn(4, 3, size, size), torch.arange(4) % num_classes
    mix = create_mixing(num_classes, config.optimization.mixup_alpha, config.optimization.cutmix_alpha)
    if mix is not None:
        images, labels = mix(images, labels)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loss = MixedTargetCrossEntropy(label_smoothing=config.optimization.label_smoothing)(model(images), labels)
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("path", CAPTION_CONFIGS, ids=lambda path: path.relative_to(ROOT / "configs").as_posix())
def test_config_of_a_captioner_is_parsed_built_and_stepped(path):
    """One step of every config as it stands, on random images of its size and random words."""
    config = parse_run_config(["--config", str(path)])
    assert path.stem == config.title
    assert path.parent.name == config.data["name"]
    torch.manual_seed(0)
    captioner = zoo.create_captioner(**config.model, num_classes=20, max_words=6)
    system = CaptionerSystem.from_config(captioner, config)
    optimizer = create_optimizer(captioner, config.optimization)
    size = min(int(config.data["image_size"]), 64)
    before = {name: parameter.detach().clone() for name, parameter in captioner.named_parameters()}
    batch = CaptionBatch(torch.randn(4, 3, size, size), torch.randint(4, 20, (4, 8)), torch.arange(4))
    loss = system.training_step(batch, 0)
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert [name for name, parameter in captioner.named_parameters() if parameter.grad is None] == []
    assert any(not torch.equal(before[name], parameter) for name, parameter in captioner.named_parameters())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.relative_to(ROOT / "configs").as_posix())
def test_config_header_names_its_own_command(path):
    text = path.read_text(encoding="utf-8")
    assert f"python train.py --config {path.relative_to(ROOT).as_posix()}\n" in text
    assert re.search(r"^# Hardware: .+\n# Score: .+", text, re.MULTILINE)
    for card in re.findall(r"weights/\S+\.yaml", text):
        assert (ROOT / card).exists(), f"{path.name} promises {card}"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_study_is_read_and_its_header_names_its_own_command(path):
    plans = read_study(path).plans("runs")
    assert len(plans) == len({plan.folder for plan in plans}) >= 6
    for plan in plans:
        zoo.create_model(**plan.config.model, num_classes=10)
    assert f"zoo compare {path.relative_to(ROOT).as_posix()} " in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_becomes_runs_of_networks_that_can_be_built(path):
    plans = read_study(path).plans("runs")
    assert len({plan.folder for plan in plans}) == len(plans)
    for plan in plans:
        assert plan.config.trainer["max_epochs"] > 0
        zoo.create_model(**plan.config.model, num_classes=NUM_CLASSES[plan.config.data["name"]])


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_header_names_its_command_and_its_results(path):
    text = path.read_text(encoding="utf-8")
    assert f"zoo compare {path.relative_to(ROOT).as_posix()} " in text
    assert f"# Results: benchmarks/studies/{path.stem}.parquet" in text


def test_every_attention_and_every_data_set_has_a_config():
    configs = [parse_run_config(["--config", str(path)]) for path in CONFIGS]
    assert {config.model.get("attention") for config in configs} >= set(zoo.list_attention())
    assert {config.model["name"] for config in configs} >= set(zoo.list_captioners())
    assert {config.data["name"] for config in configs} == {*list_data(), *list_caption_data()}


def test_every_module_says_what_it_is_for_in_its_name():
    empty_names = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py", "base.py"}
    assert [path for path in tracked_files() if path.name in empty_names] == []


def test_files_stay_short_enough_to_read():
    sources = [path for path in tracked_files() if path.suffix == ".py" and "tests" not in path.parts]
    long = {path.name: count for path in sources if (count := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_one_attention_file_never_imports_another():
    for path in (ROOT / "zoo" / "attention").rglob("*.py"):
        if path.name != "__init__.py":
            assert not re.search(r"^\s*(from|import) zoo\.attention", path.read_text(), re.MULTILINE), path


def test_every_room_stands_in_the_architecture_page():
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "zoo").iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            assert path.name in page, path.name
        if path.is_dir() and (path / "__init__.py").exists() and path.name != "attention":
            assert f"{path.name}/" in page, path.name


def test_documents_name_only_files_that_exist():
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_commands_in_the_readme_use_configs_that_exist():
    for config in re.findall(r"configs/\S+?\.yaml", (ROOT / "README.md").read_text()):
        assert (ROOT / config).exists(), config


def test_python_in_the_readme_runs(monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    complete = [block for block in blocks if "import zoo" in block]
    assert len(complete) == 2
    monkeypatch.chdir(ROOT)
    for block in complete:
        exec(compile(block, "README.md", "exec"), {})
    assert "airplane" in capsys.readouterr().out


def test_options_in_the_readme_exist():
    """Every option of a `python train.py` line in the README is one of the parser's, with a value it takes."""
    text = (ROOT / "README.md").read_text()
    lines = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("python train.py")]
    assert len(lines) >= 4
    for words in lines:
        arguments = [str(ROOT / word) if word.startswith("configs/") else word for word in words[2:]]
        if "--resume" not in arguments:
            parse_run_config(arguments)


def test_the_slot_is_always_called_attention():
    model = zoo.create_model("resnet20", attention="se")
    gates = [name for name, module in model.named_modules() if isinstance(module, type(zoo.create_attention("se", 4)))]
    assert gates
    assert all(name.rsplit(".", 1)[-1] == "attention" for name in gates)
    assert isinstance(model, nn.Module)
