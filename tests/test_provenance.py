import platform
import subprocess
from pathlib import Path

import pytest
import torch

import zoo
from zoo import provenance


def test_versions_are_those_in_use() -> None:
    versions = provenance.describe_versions()
    assert versions["python"] == platform.python_version()
    assert versions["zoo"] == zoo.__version__
    assert versions["torch"] == torch.__version__.partition("+")[0] or versions["torch"] == torch.__version__


def test_what_is_not_installed_has_no_version(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "DISTRIBUTIONS", ("torch", "no-such-distribution"))
    assert provenance.describe_versions()["no-such-distribution"] is None


def test_hardware_names_processor_and_usable_cores() -> None:
    hardware = provenance.describe_hardware("cpu")
    assert hardware["processor"]
    assert hardware["num_cores"] >= 1
    assert hardware["accelerator"] is None


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Path:
    """A repository with one commit, in place of our own."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    for words in (
        ["init", "--quiet"],
        ["add", "pyproject.toml"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first"],
    ):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    monkeypatch.setattr(provenance, "checkout_folder", lambda: tmp_path)
    return tmp_path


def test_commit_is_that_of_the_checkout_and_clean_despite_new_files(checkout: Path) -> None:
    (checkout / "untracked").touch()
    head = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    assert provenance.describe_commit() == {"id": head, "dirty": False}


def test_a_changed_file_makes_the_commit_dirty(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text("changed\n")
    commit = provenance.describe_commit()
    assert commit is not None
    assert commit["dirty"] is True


def test_there_is_no_commit_outside_a_checkout_or_without_git(tmp_path: Path, checkout: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.describe_commit() is None
    monkeypatch.setattr(provenance, "checkout_folder", lambda: None)
    assert provenance.describe_commit() is None


def test_an_installed_copy_is_no_checkout(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "site-packages" / "zoo" / "provenance.py"))
    assert provenance.checkout_folder() is None


def test_code_digest_changes_with_what_decides_a_run_and_with_nothing_above_it(tmp_path, monkeypatch):
    package = tmp_path / "zoo"
    for name in ("provenance.py", "models/resnet.py", "cli/main.py", "comparison/study.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("1\n")
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    before = provenance.code_digest()
    for name, decides in (("cli/main.py", False), ("comparison/study.py", False), ("models/resnet.py", True)):
        (package / name).write_text("2\n")
        assert (provenance.code_digest() != before) == decides, name
    moved = tmp_path / "elsewhere" / "zoo"
    moved.parent.mkdir()
    before = provenance.code_digest()
    package.rename(moved)
    monkeypatch.setattr(provenance, "__file__", str(moved / "provenance.py"))
    assert provenance.code_digest() == before
