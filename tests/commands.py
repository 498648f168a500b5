"""Fixtures of the tests of commands: a catalogue, two models of it, and a way to call commands."""

import pyarrow.parquet as pq
import pytest

from catalogues import FEATURES, arrow_table, gaia_like
from xdeconv.cli.app import run

ROWS = 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with stars.parquet, model.safetensors and other.safetensors."""
    folder = tmp_path_factory.mktemp("cli")
    pq.write_table(arrow_table(gaia_like(ROWS)), folder / "stars.parquet", row_group_size=200)
    for name, seed in (("model", "0"), ("other", "1")):
        model = str(folder / f"{name}.safetensors")
        with pytest.raises(SystemExit) as done:
            run(["fit", str(folder / "stars.parquet"), "-c", ",".join(FEATURES), "-k", "2", "-o", model,
                 "--epochs", "3", "--seed", seed, "--start", "random"])  # fmt: skip
        assert done.value.code == 0
    return folder


@pytest.fixture
def call(capsys):
    """Run a command; its exit code, standard output and standard error."""

    def call(*words):
        with pytest.raises(SystemExit) as done:
            run([str(word) for word in words])
        out, err = capsys.readouterr()
        return done.value.code, out, err

    return call
