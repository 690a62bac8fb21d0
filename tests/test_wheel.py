"""The wheel, installed away from the checkout: models, lists, and the weights it carries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command, **options):
    finished = subprocess.run([sys.executable, *command], capture_output=True, text=True, **options)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder the wheel was built for and installed into, and an environment that imports from it alone."""
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT))
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run(*pip, "--target", str(folder / "site"), str(wheel))
    return folder, {**os.environ, "PYTHONPATH": str(folder / "site"), "OMP_NUM_THREADS": "1"}


def test_a_model_is_made_from_the_installed_package(installed):
    folder, environment = installed
    code = "import zoo; print(zoo.__file__); zoo.create_model('mobilenet_v2', attention='cbam')"
    assert run("-c", code, cwd=folder, env=environment).startswith(str(folder / "site"))
    assert (folder / "site" / "zoo" / "py.typed").exists()


def test_the_console_command_lists_the_weights_of_the_checkout(installed):
    folder, environment = installed
    code = "from zoo.cli.main import main; raise SystemExit(main(['list', '--json']))"
    listed = run("-c", code, cwd=folder, env=environment)
    for card in (ROOT / "weights").glob("*.yaml"):
        assert card.stem in listed
    assert '"resnet20"' in listed
    assert '"cbam"' in listed


def test_digits_train_from_the_installed_package(installed):
    """The tables a data set needs travel in the wheel."""
    folder, environment = installed
    code = (
        "import zoo; data = zoo.create_data('cluttered_digits', num_images=300); print(data.num_train); "
        "from importlib.resources import files; print((files('zoo.data') / 'imagenet_classes.txt').is_file())"
    )
    assert run("-c", code, cwd=folder, env=environment).split() == ["200", "True"]
