"""What docs/weights.md says can be run, as far as nothing must be fetched for it."""

import re
from pathlib import Path

import pytest

import zoo
from benchmarks.parity import LOGITS, document_table, newest_rows
from zoo.cli.main import create_parser
from zoo.pretrained.addresses import parse_address

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")


def test_the_parity_table_is_what_the_rows_say() -> None:
    section = re.search(r"<!-- parity -->\n(.*?)\n<!-- end parity -->", TEXT, re.DOTALL)
    assert section is not None
    assert section[1] == document_table(newest_rows())


def test_no_logit_in_the_table_differs_by_more_than_1e_5_of_the_largest() -> None:
    rows = [row for row in newest_rows() if row["what"] == LOGITS]
    assert len(rows) >= 20
    for row in rows:
        assert float(row["value"]) <= 1e-5 * max(1.0, float(row["reference"])), row["subject"]


def test_every_source_shown_is_a_known_kind_of_address() -> None:
    shown = re.findall(r'pretrained="([^"]+)"', TEXT)
    kinds = {parse_address(source.replace("<64 digits>", "0" * 64)).kind for source in shown}
    assert kinds == {"card", "timm", "torchvision", "hf", "file", "url"}


def test_the_account_of_every_tensor_runs_as_shown(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "report.describe()" in block]
    block = block.replace("load_into(model, ", "load_into(zoo.create_model('resnet20', attention='cbam'), ")
    exec(compile(block, "docs/weights.md", "exec"), {"zoo": zoo})
    assert "the head for 10 classes is replaced by a fresh one for 100" in capsys.readouterr().out


def test_models_shown_are_in_timm() -> None:
    timm = pytest.importorskip("timm")
    import zoo.timm_models  # noqa: F401

    for name in re.findall(r'timm\.create_model\("([^"]+)"', TEXT):
        assert timm.is_model(name)


def test_command_lines_shown_have_options_that_exist() -> None:
    _, by_name = create_parser()
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            _, command, *words = line.split("#")[0].split()
            by_name[command].parse_args(words)
