"""The README's example and commands run, and do what they say."""

import re
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from typer.testing import CliRunner

from xdeconv import cli

sys.path.insert(0, str(Path(__file__).parent))
from blocks import words_of

mpl.use("Agg")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^    (xdeconv .*)$", README, flags=re.MULTILINE)


@pytest.mark.docs
@pytest.mark.parametrize("block", BLOCKS)
def test_examples_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    order = np.argsort(-names["mixture"].weights)
    np.testing.assert_allclose(names["mixture"].means[order], names["truth"].means, atol=0.15)
    assert (tmp_path / "model.safetensors").exists()
    assert capsys.readouterr().out
    for words in words_of("\n".join(COMMANDS)):
        result = CliRunner().invoke(cli.app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "corner.png").exists()
    assert (tmp_path / "page.html").exists()


def test_there_is_one_short_example():
    (block,) = BLOCKS
    assert len([line for line in block.splitlines() if line.strip()]) <= 11


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_the_two_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
