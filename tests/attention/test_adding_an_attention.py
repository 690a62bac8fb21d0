"""The example of docs/adding-an-attention.md, put where the page says and run through the contract."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = "tests/contracts/test_attention_contract.py"
FILE = re.compile(r"^`(?P<path>(?:zoo|tests)/\S+\.py)`:\n\n```python\n(?P<source>.*?)```", re.MULTILINE | re.DOTALL)


def run_contract(copy: Path, selection: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CONTRACT, "-k", selection]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=240, check=False)


def test_the_example_passes_the_contract_and_fails_it_without_a_formula(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "zoo", tmp_path / "zoo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "contracts").mkdir(parents=True)
    shutil.copy(ROOT / CONTRACT, tmp_path / CONTRACT)
    page = (ROOT / "docs" / "adding-an-attention.md").read_text(encoding="utf-8")
    sources = {match["path"]: match["source"] for match in FILE.finditer(page)}
    assert len(sources) == 2
    for path, source in sources.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source, encoding="utf-8")

    outcome = run_contract(tmp_path, "channel_bias")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert " passed" in outcome.stdout

    (tmp_path / "tests/attention/feature_map/test_channel_bias.py").unlink()
    outcome = run_contract(tmp_path, "channel_bias and formula")
    assert outcome.returncode == 1
    assert "attention 'channel_bias' has no test file test_channel_bias.py" in outcome.stdout
