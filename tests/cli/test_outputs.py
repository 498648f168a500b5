"""What is read is never written, what is not ours is not overwritten unless forced, and a file chooses no paths."""

import os
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

import xdeconv as xd
from catalogues import FEATURES
from xdeconv.cli.app import app
from xdeconv.cli.config import WRITTEN
from xdeconv.cli.outputs import checked

MODEL, STARS = "model.safetensors", "stars.parquet"
FIT = ("fit", STARS, "-c", "parallax,pmra", "-k", "1", "--epochs", "1", "--moves", "none")
INPUTS_AS_OUTPUTS = [
    ("posterior", MODEL, STARS, "-o", STARS),
    ("posterior", MODEL, "*.parquet", "-o", STARS),
    ("posterior", MODEL, ".", "-o", STARS),
    ("posterior", MODEL, STARS, "-o", "link.parquet"),
    ("posterior", MODEL, STARS, "-o", "hard.parquet"),
    ("posterior", MODEL, STARS, "-o", "../{name}/" + STARS),
    ("posterior", MODEL, STARS, "-o", STARS, "--force"),
    ("score", MODEL, STARS, "--per-row", STARS),
    ("classify", STARS, "--model", f"a={MODEL}", "-o", STARS),
    ("members", MODEL, STARS, "-o", STARS),
    (*FIT, "-o", STARS),
    (*FIT, "--background", MODEL, "-o", MODEL),
    (*FIT, "--background", MODEL, "-o", "link.safetensors", "--force"),
    (*FIT, "--background", MODEL, "-o", "hard.safetensors", "--force"),
    ("condition", MODEL, "parallax=1", "-o", "link.safetensors"),
    ("condition", MODEL, "parallax=1", "-o", "hard.safetensors"),
    (*FIT, "-o", "new.safetensors", "--checkpoint", STARS),
    (*FIT, "-o", "new.safetensors", "--checkpoint", "new.safetensors"),
    ("select", STARS, "-c", "parallax", "-k", "1", "--model", STARS),
    ("select", STARS, "-c", "parallax", "-k", "1", "--results", STARS),
    ("select", STARS, "-c", "parallax", "-k", "1", "--model", "new.safetensors", "--results", "new.safetensors"),
    ("select", STARS, "-c", "parallax", "-k", "1", "-o", "new.png", "--results", "../{name}/new.png"),
    (*FIT, "-o", "new.safetensors", "--checkpoint", "../{name}/new.safetensors"),
    ("condition", MODEL, "parallax=1", "-o", MODEL),
    ("condition", MODEL, "parallax=1", "-o", MODEL, "--force"),
    ("sample", "a.parquet", "-o", "a.parquet"),
    ("export", "a.npz", "-o", "a.npz"),
    ("explore", "a.html", "-o", "a.html"),
    ("plot", "a.png", "-o", "a.png"),
]


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A folder of its own, with copies, links and models under names that outputs have."""
    for name in (MODEL, STARS):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for name in ("a.parquet", "a.npz", "a.html", "a.png"):
        (tmp_path / name).write_bytes((folder / MODEL).read_bytes())
    for name, ending in ((STARS, "parquet"), (MODEL, "safetensors")):
        os.symlink(tmp_path / name, tmp_path / f"link.{ending}")
        os.link(tmp_path / name, tmp_path / f"hard.{ending}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("words", INPUTS_AS_OUTPUTS, ids=" ".join)
def test_an_output_that_is_an_input_is_refused(here, call, words):
    before = contents(here)
    code, _, err = call(*(word.format(name=here.name) for word in words))
    assert code == 2, err
    assert "Traceback" not in err
    assert contents(here) == before


FOREIGN = [
    ("fit", "theirs.safetensors", (*FIT, "-o")),
    ("posterior", "theirs.parquet", ("posterior", MODEL, STARS, "-o")),
    ("posterior", "theirs.csv", ("posterior", MODEL, STARS, "-o")),
    ("posterior", "theirs.arrow", ("posterior", MODEL, STARS, "-o")),
    ("score", "theirs.parquet", ("score", MODEL, STARS, "--per-row")),
    ("members", "theirs.parquet", ("members", MODEL, STARS, "-o")),
    ("classify", "theirs.parquet", ("classify", STARS, "--model", f"a={MODEL}", "-o")),
    ("sample", "theirs.parquet", ("sample", MODEL, "-o")),
    ("simulate", "theirs.parquet", ("simulate", "gaia", "--rows", "10", "-o")),
    ("condition", "theirs.safetensors", ("condition", MODEL, "parallax=1", "-o")),
    ("export", "theirs.npz", ("export", MODEL, "-o")),
    ("export", "theirs.fits", ("export", MODEL, "-o")),
    ("explore", "theirs.html", ("explore", MODEL, "-o")),
    *(("plot", f"theirs.{kind}", ("plot", MODEL, "--marginal", "parallax", "--dpi", "20", "-o"))
      for kind in ("png", "pdf", "svg", "jpg")),
    ("select", "theirs.png", ("select", STARS, "-c", "parallax", "-k", "1", "--epochs", "1", "-o")),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "theirs", "words"), FOREIGN, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_not_ours_needs_force_and_what_is_ours_does_not(here, call, name, theirs, words):
    (here / theirs).write_bytes(b"somebody's work of years")
    code, _, err = call(*words, theirs)
    assert code == 3, err
    assert "--force" in err
    assert (here / theirs).read_bytes() == b"somebody's work of years"
    assert call(*words, theirs, "--force")[0] == 0
    assert (here / theirs).read_bytes() != b"somebody's work of years"
    again, _, err = call(*words, theirs)
    assert again == (3 if theirs.endswith(".csv") else 0), err  # a text file cannot say who wrote it


def test_a_table_that_only_looks_like_ours_is_not(here, call):
    """The word xdeconv among its values and column names is no mark."""
    table = pq.read_table(here / STARS).select(["parallax"]).rename_columns(["xdeconv"])
    pq.write_table(table, here / "theirs.parquet")
    assert call("sample", MODEL, "-o", "theirs.parquet")[0] == 3
    assert pq.read_table(here / "theirs.parquet").equals(table)


def test_an_empty_name_is_said_to_be_that(here, call):
    """It stood for the folder, with the model of before in it, which was "what the command reads"."""
    code, _, err = call("fit", "", *FIT[2:], "-o", MODEL)
    assert code == 3
    assert "the name of a file to read is empty" in err


def test_a_table_of_ours_is_known_whatever_colons_are_in_its_name(here, call):
    for _ in range(2):
        code, _, err = call("sample", MODEL, "-n", "10", "-o", "run:1.parquet")
        assert code == 0, err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["pipe.parquet", "pipe.arrow", "pipe.png", "pipe.html", "pipe.npz", "pipe.fits",
                                  "pipe.safetensors"])  # fmt: skip
def test_a_pipe_is_refused_and_nobody_waits_for_it(here, name):
    os.mkfifo(here / name)
    ends = []

    def ask():
        try:
            checked(here / name, (), False)
        except OSError as problem:
            ends.append(str(problem))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    assert ends == [f"--output {here / name} is a pipe or a device: name a file"]
    with pytest.raises(OSError, match="is a pipe or a device"):
        checked(here / name, (), True)
    assert not (here / name).is_file()


def test_a_model_must_be_called_so(here, call):
    code, _, err = call(*FIT, "-o", "model.txt")
    assert code == 2
    assert ".safetensors" in err


def test_a_checkpoint_over_something_else_is_refused(here, call):
    (here / "notes.txt").write_text("notes")
    code, _, err = call(*FIT, "-o", "new.safetensors", "--checkpoint", "notes.txt")
    assert code == 3
    assert "notes.txt is there and is not an xdeconv checkpoint" in err
    assert (here / "notes.txt").read_text() == "notes"
    (here / "new.safetensors.checkpoint").write_text("notes")
    assert call(*FIT, "-o", "new.safetensors")[0] == 3
    assert (here / "new.safetensors.checkpoint").read_text() == "notes"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("fit", 'output = "stars.parquet"'),
        ("fit", 'checkpoint = "stars.parquet"'),
        ("fit", "force = true"),
        ("score", 'per-row = "stars.parquet"'),
        ("score", 'per_row = "stars.parquet"'),
        ("select", 'model = "stars.parquet"'),
        ("select", 'results = "stars.parquet"'),
        ("prepare", 'paths = ["stars.parquet", "store"]'),
        ("errors", 'picture = "picture.png"'),
        ("plot", 'model = "other.safetensors"'),
    ],
)
def test_a_file_of_options_chooses_no_paths(here, call, command, line):
    (here / "options.toml").write_text(f"[{command}]\n{line}\n")
    words = {
        "fit": FIT, "score": ("score", MODEL, STARS), "select": ("select", STARS, "-c", "parallax", "-k", "1"),
        "prepare": ("prepare",), "errors": ("errors", MODEL, STARS), "plot": ("plot",),
    }[command]  # fmt: skip
    before = contents(here)
    code, _, err = call(*words, "--config", "options.toml")
    assert code == 2, err
    assert "on the command line" in err
    assert contents(here) == before


def test_every_option_that_is_a_path_is_known_to_be_read_or_written():
    read = {"model", "field", "config"}
    commands = typer.main.get_command(app).commands
    paths = {p.name for command in commands.values() for p in command.params if is_path(p)}
    assert paths - read <= set(WRITTEN)
    assert {"output", "per_row", "picture", "checkpoint"} <= paths


def is_path(parameter):
    return "Path" in str(vars(parameter).get("type_descriptor") or vars(parameter).get("type"))


def test_a_folder_that_is_missing_is_said_before_the_work(here, call):
    code, _, err = call("posterior", MODEL, STARS, "-o", "nowhere/true.parquet")
    assert code == 3
    assert "there is no folder nowhere" in err
    assert call("posterior", MODEL, STARS, "-o", ".", "--force")[0] == 2


def test_models_of_a_fit_may_be_written_again(here, call):
    for seed in (0, 1):
        assert call(*FIT, "-o", "new.safetensors", "--seed", seed)[0] == 0
    assert xd.load(here / "new.safetensors").labels == tuple(FEATURES[2:4])
    assert np.isfinite(xd.load(here / "new.safetensors").means).all()


def test_a_folder_that_cannot_be_written_to_is_said_before_the_work(here, call, monkeypatch):
    """A bootstrap ended with it."""
    (here / "read-only").mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: os.path.basename(path) != "read-only" and access(path, mode))
    code, _, err = call("bootstrap", MODEL, STARS, "--draws", "1000000", "-o", "read-only/draws.csv")
    assert code == 3
    assert "nothing can be written into the folder read-only" in err


@pytest.mark.parametrize("name", ["new.parquet", "new.arrow", "new.csv", "new.csv.gz", "new.png"])
def test_what_cannot_be_written_is_said_by_the_name_that_was_given(here, call, name):
    (here / f".{name}.{os.getpid()}.{threading.get_ident()}.partial").mkdir()
    words = ("plot", MODEL, "--marginal", "parallax") if name.endswith("png") else ("sample", MODEL)
    code, _, err = call(*words, "-o", name)
    assert code == 3
    assert f"could not write {name}: " in err
    assert "directory" in err
    assert "partial" not in err
