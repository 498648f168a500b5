"""The command line: every command on small files, words that scripts rely on, exit codes, documentation."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import typer

import xdeconv as xd
from catalogues import FEATURES, gaia_like
from xdeconv import cli
from xdeconv.cli.app import EXIT_CODES
from xdeconv.cli.plot import Wanted, draw
from xdeconv.system.progress import Progress

COLUMNS = ",".join(FEATURES)
ROWS = 600


def commands():
    group = typer.main.get_command(cli.app)
    return group.commands.items()


# Documentation


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_command_and_option_is_documented(name, command):
    assert command.help, name
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_all_commands_are_there():
    wanted = {"fit", "score", "sample", "posterior", "condition", "classify", "members", "info", "prepare", "simulate",
              "demo", "export", "select", "plot", "explore"}  # fmt: skip
    assert wanted <= {name for name, _ in commands()}


def test_exit_codes_are_documented(call):
    code, out, _ = call("--help")
    assert code == 0
    for number in EXIT_CODES:
        assert str(number) in out


@pytest.mark.processes
def test_help_imports_nothing_heavy():
    heavy = ("torch", "numpy", "pyarrow", "scipy", "matplotlib")
    code = f"import sys, xdeconv.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Commands


def test_fit_says_what_it_reads_and_what_it_found(folder, call):
    code, out, err = call("fit", folder / "stars.parquet", "-c", COLUMNS, "-k", 2, "-o", folder / "a.safetensors",
                          "--epochs", 2, "--where", "ruwe < 1.1", "--start", "random", "--moves", "none")  # fmt: skip
    assert code == 0
    assert "sd ra_error (mas -> deg" in err
    train, held = out.strip().splitlines()
    assert train.startswith("train log-likelihood ")
    assert held.startswith("held-out log-likelihood ")
    mixture = xd.load(folder / "a.safetensors")
    assert mixture.labels == tuple(FEATURES)
    assert mixture.meta["where"] == "ruwe < 1.1"
    assert mixture.meta["options"]["epochs"] == 2
    assert mixture.meta["validation"] == pytest.approx(float(held.split()[-1]), abs=1e-5)
    assert not (folder / "a.safetensors.checkpoint").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("method", ["minibatch-em", "sgd"])
def test_other_methods(folder, call, method):
    code, out, _ = call("fit", folder / "stars.parquet", "-c", "parallax,pmra", "-k", 2, "-o", folder / "b.safetensors",
                        "--epochs", 2, "--method", method, "--batch-rows", 100, "--validation", 0)  # fmt: skip
    assert code == 0
    assert "held-out" not in out


@pytest.mark.slow
def test_fit_chooses_how_many_or_refuses_words(folder, call):
    words = (
        "fit",
        folder / "stars.parquet",
        "-c",
        "parallax",
        "--where",
        "parallax > 0",
        "-o",
        folder / "c.safetensors",
    )
    code, _, _ = call(*words, "-k", "auto", "--validation", 0)
    assert code == 0
    assert xd.load(folder / "c.safetensors").meta["options"]["components"] == "auto"
    assert "components chosen by cross-validation" in " ".join(xd.load(folder / "c.safetensors").meta["notes"])
    for wrong in ("many", "0", "-3"):
        assert call(*words, "-k", wrong)[0] == 2


def test_score_prints_the_mean_last(folder, call):
    code, out, _ = call("score", folder / "model.safetensors", folder / "stars.parquet")
    assert code == 0
    mixture = xd.load(folder / "model.safetensors")
    batch = xd.open(folder / "stars.parquet", FEATURES).load().batch
    assert float(out.strip().splitlines()[-1]) == pytest.approx(mixture.score(batch), abs=1e-5)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_rows_keep_their_order_and_columns(folder, call, suffix):
    target = folder / f"scores.{suffix}"
    assert call("score", folder / "model.safetensors", folder / "stars.parquet", "--per-row", target,
                "--keep", "source_id,ruwe")[0] == 0  # fmt: skip
    read = {
        "parquet": pq.read_table,
        "csv": pyarrow.csv.read_csv,
        "arrow": lambda p: pyarrow.ipc.open_file(p).read_all(),
    }
    found = read[suffix](target)
    assert found.column_names == ["source_id", "ruwe", "log_likelihood"]
    assert found["source_id"].to_pylist() == gaia_like(ROWS)["source_id"].tolist()
    mixture = xd.load(folder / "model.safetensors")
    expected = mixture.log_prob(xd.open(folder / "stars.parquet", FEATURES).load().batch)
    assert np.allclose(found["log_likelihood"].to_numpy(), expected)


def test_posterior(folder, call):
    target = folder / "true.parquet"
    code, _, err = call(
        "posterior", folder / "model.safetensors", folder / "stars.parquet", "-o", target, "--keep", "*"
    )
    assert code == 0
    assert "600 rows" in err
    found = pq.read_table(target)
    assert found.column_names[: len(gaia_like(1))] == list(gaia_like(1))
    batch = xd.open(folder / "stars.parquet", FEATURES).load().batch
    posterior = xd.load(folder / "model.safetensors").posterior(batch)
    assert np.allclose(found["parallax_true"].to_numpy(), posterior.mean()[:, 2])
    V = posterior.covariance()
    assert np.allclose(found["pmra_true_error"].to_numpy() ** 2, V[:, 3, 3])
    assert np.allclose(found["pmra_pmdec_true_corr"].to_numpy(), V[:, 3, 4] / np.sqrt(V[:, 3, 3] * V[:, 4, 4]))


def test_sample_and_condition_and_info(folder, call):
    assert call("sample", folder / "model.safetensors", "-n", 50, "--seed", 1, "-o", folder / "draws.csv")[0] == 0
    assert pyarrow.csv.read_csv(folder / "draws.csv").shape == (50, 7)
    options = ("--seed", 1, "--device", "cpu", "--dtype", "float32")
    assert call("sample", folder / "model.safetensors", "-n", 50, *options, "-o", folder / "single.csv")[0] == 0
    assert pyarrow.csv.read_csv(folder / "single.csv").shape == (50, 7)
    code, out, _ = call("condition", folder / "model.safetensors", "bp_rp=0.8", "phot_g_mean_mag=15", "--error",
                        "bp_rp=0.1", "-o", folder / "given.safetensors")  # fmt: skip
    assert code == 0
    assert len(out.strip().splitlines()) == 5
    given = xd.load(folder / "model.safetensors").condition(
        {"bp_rp": 0.8, "phot_g_mean_mag": 15.0}, error={"bp_rp": 0.1}
    )
    assert np.allclose(xd.load(folder / "given.safetensors").means, given.means)
    assert "mixture of 2 Gaussians in 7 dimensions" in call("info", folder / "model.safetensors")[1]
    assert "600 rows in 3 pieces" in call("info", folder / "stars.parquet")[1]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("corner", ("--corner", "parallax,bp_rp", "--condition", "phot_g_mean_mag=15,pmra=1")),
        ("corner", ("--corner", "parallax,bp_rp", "--data", "stars.parquet", "--components")),
        ("density", ("--density", "bp_rp,phot_g_mean_mag", "--components")),
        ("density", ("--density", "bp_rp,parallax", "--data", "stars.parquet", "--limits", "parallax=0:5,bp_rp=0:3")),
        ("corner", ()),
        ("marginal", ("--marginal", "parallax", "--data", "stars.parquet")),
        ("sky", ("--sky",)),
        ("cmd", ("--cmd", "--condition", "parallax=2")),
        ("cmd", ("--cmd", "--components", "--limits", "bp_rp=0:3")),
        ("history", ("--history",)),
        ("calibration", ("--calibration", "stars.parquet", "--where", "ruwe < 1.2")),
        ("misfit", ("--misfit", "parallax,pmra", "--data", "stars.parquet")),
        ("denoised", ("--denoised", "parallax,pmra", "--data", "stars.parquet", "--most-rows", 50)),
    ],
)
def test_plot(folder, call, kind, words, monkeypatch):
    monkeypatch.chdir(folder)
    code, _, err = call("plot", "model.safetensors", *words, "--dpi", 30)
    assert code == 0, err
    target = folder / f"model-{kind}.png"
    assert f"written: {target.name}" in err
    assert target.read_bytes()[:4] == b"\x89PNG"
    target.unlink()


def test_a_picture_says_what_is_held_fixed():
    """A slice of a model looked just like the model."""
    mixture = xd.Mixture([1.0], [[0.0] * 3], [np.eye(3)], ["x", "y", "z"], ["", "mas", ""])
    for kind, names in (("density", ["x", "z"]), ("corner", ["x", "z"]), ("marginal", ["x"])):
        figure = draw(mixture, Wanted(kind, names, {"y": 2.5}, None, False, {})).figure
        assert figure.get_suptitle() == "given y = 2.5 mas"
        assert draw(mixture, Wanted(kind, names, {}, None, False, {})).figure.get_suptitle() == ""
    many = xd.Mixture([1.0], [[0.0] * 8], [np.eye(8)], [f"name_{a}" for a in range(8)], ["mas/yr"] * 8)
    held = {f"name_{a}": float(a) for a in range(1, 8)}
    lines = draw(many, Wanted("marginal", ["name_0"], held, None, False, {})).figure.get_suptitle().splitlines()
    assert len(lines) > 1
    assert all(line.endswith(("mas/yr", "mas/yr,")) for line in lines)


@pytest.mark.slow
def test_plot_refuses_what_does_not_go_together(folder, call):
    def words(*more):
        code, _, err = call("plot", folder / "model.safetensors", "-o", folder / "p.png", *more)
        return code, err

    assert words("--sky", "--cmd")[0] == 2
    assert "--sky, --cmd" in words("--sky", "--cmd")[1]
    assert words("--misfit", "parallax,pmra")[0] == 2
    assert words("--history", "--data", folder / "stars.parquet")[0] == 2
    assert words("--history", "--condition", "parallax=1")[0] == 2
    assert words("--condition", "parallax=wide")[0] == 2
    for wrong in ("parallax", "parallax=1", "parallax=5:1", "parallax=a:b", "parallax=1:2:3", "parallax=0:inf"):
        assert words("--limits", wrong)[0] == 2
    assert words("--history", "--limits", "parallax=0:1")[0] == 2
    assert words("--history", "--components")[0] == 2
    assert words("--limits", "nothing=0:1")[0] == 1
    assert words("--corner", "parallax,nothing")[0] == 1
    assert words("-o", folder / "p.txt")[0] == 2
    assert not (folder / "p.png").exists()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("labels", "kind"),
    [(["x"], "marginal"), (["x", "y"], "density"), (["ra", "dec"], "sky"), (["bp_rp", "phot_g_mean_mag"], "cmd"),
     (["x", "y", "z"], "corner"), (None, "density"), ([f"x{i}" for i in range(10)], "corner")],
)  # fmt: skip
def test_plot_without_a_kind_suits_the_coordinates(call, tmp_path, labels, kind):
    d = len(labels or "xy")
    xd.Mixture([1.0], np.ones((1, d)), np.eye(d)[None], labels=labels).save(tmp_path / "m.safetensors")
    code, _, err = call("plot", tmp_path / "m.safetensors", "--dpi", 20)
    assert code == 0, err
    assert (tmp_path / f"m-{kind}.png").exists()


def test_explore(folder, call):
    code, _, err = call("explore", folder / "model.safetensors", "-o", folder / "page.html", "--title", "Stars")
    assert code == 0
    assert "page.html" in err
    assert "<title>Stars</title>" in (folder / "page.html").read_text()
    assert call("explore", folder / "model.safetensors", "-o", folder / "page.txt")[0] == 2


def test_classify_and_members(folder, call):
    models = [f"{name}={folder / name}.safetensors" for name in ("model", "other")]
    target = folder / "classes.parquet"
    assert call("classify", folder / "stars.parquet", "-o", target, "--model", models[0], "--model", models[1])[0] == 0
    found = pq.read_table(target)
    assert found.column_names == ["source_id", "p_model", "p_other"]
    assert np.allclose(found["p_model"].to_numpy() + found["p_other"].to_numpy(), 1)
    assert call("members", folder / "model.safetensors", folder / "stars.parquet", "-o", target, "--field",
                folder / "other.safetensors", "--fraction", 0.01)[0] == 0  # fmt: skip
    odds = found["p_model"].to_numpy() / found["p_other"].to_numpy() * 0.01 / 0.99
    assert np.allclose(pq.read_table(target)["p_member"].to_numpy(), odds / (1 + odds))


def test_priors_from_columns(folder, call):
    models = [f"--model={name}={folder / name}.safetensors" for name in ("model", "other")]
    target, stars = folder / "counts.parquet", folder / "stars.parquet"
    priors = ("--prior", "model=10 ** (0.1 * phot_g_mean_mag)", "--prior", "other=2")
    assert call("classify", stars, "-o", target, *models, *priors)[0] == 0
    found = pq.read_table(target)["p_model"].to_numpy()
    classifier = xd.Classifier({name: xd.load(folder / f"{name}.safetensors") for name in ("model", "other")})
    counts = 10 ** (0.1 * pq.read_table(stars)["phot_g_mean_mag"].to_numpy())
    batch = xd.open(stars, FEATURES).load().batch
    assert np.allclose(found, classifier.predict_proba(batch, priors={"model": counts, "other": 2.0})[:, 0])
    code, _, err = call(
        "classify", stars, "-o", target, *models, "--prior", "model=phot_g_mean_mgg", "--prior", "other=2"
    )
    assert code == 1
    assert "phot_g_mean_mgg" in err


def test_export(folder, call):
    for suffix in ("npz", "fits"):
        assert call("export", folder / "model.safetensors", "-o", folder / f"model.{suffix}")[0] == 0
        assert (folder / f"model.{suffix}").exists()
    code, _, err = call("export", folder / "model.safetensors", "-o", folder / "model.txt")
    assert code == 2
    assert ".npz or .fits" in err


def test_prepare(folder, call):
    code, _, err = call("prepare", folder / "stars.parquet", folder / "store", "-c", COLUMNS, "--keep", "source_id")
    assert code == 0
    assert "600 rows" in err
    assert "shuffled" in call("info", folder / "store", "--check")[1]
    a = call("score", folder / "model.safetensors", folder / "store")[1]
    assert a == call("score", folder / "model.safetensors", folder / "stars.parquet")[1]
    assert call("prepare", folder / "stars.parquet")[0] == 2
    code, _, err = call("prepare", folder / "stars.parquet", "-o", folder / "named")
    assert (code, "rows in" in err) == (0, True)
    assert call("prepare", "-o", folder / "named")[0] == 2


@pytest.mark.slow
def test_simulate(folder, call, monkeypatch):
    counts = []
    told = Progress.update
    monkeypatch.setattr(Progress, "update", lambda self, text, done=0: told(self, text, done) or counts.append(done))
    assert call("simulate", "gaia", "--rows", 1000, "--seed", 3, "-o", folder / "sim.parquet")[0] == 0
    assert sum(counts) == 1000
    assert pq.read_metadata(folder / "sim.parquet").num_rows == 1000
    assert call("simulate", "stars", "-o", folder / "sim.parquet")[0] == 2


def test_options_from_a_file(folder, call):
    config = folder / "fit.toml"
    config.write_text(
        f'columns = {json.dumps(FEATURES[2:5])}\n[fit]\ncomponents = 3\nepochs = 1\nstart = "random"\n'
        'error = ["parallax=0.5"]\nbatch-rows = 50\n[score]\nwhere = "ruwe < 1"\n'
    )
    words = ("fit", folder / "stars.parquet", "-o", folder / "c.safetensors", "--config", config)
    code, _, err = call(*words)
    assert code == 0, err
    assert xd.load(folder / "c.safetensors").k == 3
    assert xd.load(folder / "c.safetensors").meta["open"]["error"] == {"parallax": 0.5}
    assert call(*words, "-k", "2")[0] == 0
    assert xd.load(folder / "c.safetensors").k == 2
    config.write_text("componets = 3\n")
    code, _, err = call(*words)
    assert code == 2
    assert "componets" in err
    config.write_text("components = \n")
    assert call(*words)[0] == 2


# Problems


def test_problems_have_codes_and_one_line(folder, call):
    words = ("-k", 2, "-o", folder / "x.safetensors")
    code, _, err = call("fit", folder / "stars.parquet", "-c", "paralax", *words)
    assert code == 1
    assert "did you mean parallax" in err
    assert "Traceback" not in err
    assert call("fit", folder / "nowhere.parquet", "-c", COLUMNS, *words)[0] == 3
    assert call("fit", folder / "stars.parquet", "-c", COLUMNS, "--method", "magic", *words)[0] == 2
    assert call("fit", folder / "stars.parquet", "-c", COLUMNS, "--moves", "magic", *words)[0] == 2
    assert call("fit", folder / "stars.parquet", "-c", COLUMNS, "--error", "parallax", *words)[0] == 2
    assert call("fit", folder / "stars.parquet", "-c", COLUMNS, "--where", "ruwe <", *words)[0] == 1
    assert call("fit", folder / "stars.parquet")[0] == 2
    assert call("score", folder / "stars.parquet", folder / "stars.parquet")[0] == 3
    assert call("sample", folder / "model.safetensors", "-o", folder / "draws.xyz")[0] == 2
    (folder / "broken.parquet").write_bytes(b"PAR1")
    code, _, err = call("score", folder / "model.safetensors", folder / "broken.parquet")
    assert code == 3
    assert "broken.parquet" in err


def test_bad_files_are_skipped_and_counted(folder, call):
    (folder / "broken.parquet").write_bytes(b"PAR1")
    words = ("score", folder / "model.safetensors", folder / "stars.parquet", folder / "broken.parquet")
    assert call(*words)[0] == 3
    code, out, err = call(*words, "--skip-bad-files")
    assert code == 0
    assert "1 damaged files" in err
    assert out == call("score", folder / "model.safetensors", folder / "stars.parquet")[1]


def start(folder, *words):
    line = [sys.executable, "-m", "xdeconv", "fit", str(folder / "stars.parquet"), "-c", COLUMNS, "-k", "3",
            "--tol", "0", "--start", "random", "--validation", "0",
            "--moves", "none", "--checkpoint-seconds", "0", *map(str, words)]  # fmt: skip
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path):
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)


def epochs(path):
    from xdeconv.fitting.state import load_state

    return load_state(path).epoch


@pytest.mark.processes
def test_an_interrupt_saves_and_says_how_to_go_on(folder):
    process = start(folder, "-o", folder / "i.safetensors", "--epochs", 1_000_000)
    wait_for(folder / "i.safetensors.checkpoint")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "--resume continues from" in err
    assert "train log-likelihood" in out
    assert xd.load(folder / "i.safetensors").k == 3


@pytest.mark.processes
def test_kill_nine_and_resume_gives_the_same_model(folder):
    process = start(folder, "-o", folder / "k.safetensors", "--epochs", 1_000_000)
    saved = folder / "k.safetensors.checkpoint"
    wait_for(saved)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = epochs(saved)
    assert done >= 1
    words = ("--epochs", done + 5)
    resumed = start(folder, "-o", folder / "k.safetensors", "--resume", *words)
    whole = start(folder, "-o", folder / "w.safetensors", *words)
    for other in (resumed, whole):
        _, err = other.communicate(timeout=120)
        assert other.returncode == 0, err
    a, b = xd.load(folder / "k.safetensors"), xd.load(folder / "w.safetensors")
    assert (a.means == b.means).all()
    assert (a.covariances == b.covariances).all()
