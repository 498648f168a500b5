"""No tracebacks: one line and an exit code, whatever a file, a word, a signal or a pipe does."""

import os
import signal
import subprocess
import sys
import time
import warnings
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from catalogues import FEATURES
from xdeconv.cli.app import EXIT_CODES, Stop, code_of, run, text_of

MODEL, STARS = "model.safetensors", "stars.parquet"
MIXTURE = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [3.0, 1.0]], np.array([np.eye(2)] * 2), labels=["x", "y"])


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A folder with a model and rows of x and y."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=200) for name in ("x", "y")}
    columns |= {f"{name}_error": np.full(200, 0.1) for name in ("x", "y")}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    MIXTURE.save(tmp_path / "m.safetensors")
    for name in (MODEL, STARS):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


FIT = ("fit", "rows.parquet", "-c", "x,y", "-k", "1", "--epochs", "1", "--moves", "none", "-o", "new.safetensors")


# Exit codes


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (ValueError("a"), 1), (ImportError("a"), 1), (FileNotFoundError(2, "gone", "file"), 3), (EOFError("cut"), 3),
        (ZeroDivisionError("a"), 4), (KeyError("a"), 5), (MemoryError(), 5), (RecursionError("deep"), 5),
        (KeyboardInterrupt(), 130), (Stop(130, "a"), 130), (OSError(12, "Cannot allocate memory"), 5),
        (RuntimeError("can't start new thread"), 5),
    ],
)  # fmt: skip
def test_every_problem_has_a_documented_code_and_one_line(problem, code):
    assert code_of(problem) == code
    assert code in EXIT_CODES
    assert text_of(problem)
    assert "\n" not in text_of(problem)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "kind", [KeyError, TypeError, RecursionError, MemoryError, EOFError, AssertionError, SystemError]
)
def test_what_nobody_foresaw_is_one_line(here, call, monkeypatch, kind):
    def broken(*_, **__):
        raise kind("two\nlines \x1b[31m")

    monkeypatch.setattr("xdeconv.catalog._open.open_source", broken)
    code, _, err = call(*FIT)
    assert code == code_of(kind("x"))
    assert err.count("\n") == 1
    assert "two lines \\x1b[31m" in err
    code, _, err = call(*FIT, "--traceback")
    assert code == code_of(kind("x"))
    assert "Traceback" in err
    assert "broken" in err


def test_what_breaks_in_the_wake_of_an_interrupt_is_an_interrupt(here, call, monkeypatch):
    """As a lock that a second Ctrl-C left unlocked: it was an error that nobody foresaw, exit code 5."""

    def broken(*_, **__):
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr("xdeconv.catalog._open.open_source", broken)
    code, _, err = call(*FIT)
    assert (code, err) == (130, "xdeconv: interrupted\n")
    code, _, err = call(*FIT, "--traceback")
    assert code == 130
    assert "RuntimeError: release unlocked lock" in err


def test_traceback_is_not_for_what_stands_after_a_double_dash(here, call):
    code, _, err = call("info", "--", "--traceback")
    assert code == 3
    assert "no readable file at --traceback" in err


def test_version(call):
    assert call("--version")[:2] == (0, f"xdeconv {xd.__version__}\n")


# Words


@pytest.mark.parametrize(
    ("option", "choices"),
    [("--method", "auto|em|minibatch-em|sgd"), ("--moves", "none|auto|bovy"), ("--start", "kmeans|kmeans++|random"),
     ("--bad-rows", "refuse|drop"), ("--device", "cpu|cuda"), ("--dtype", "float32|float64")],
)  # fmt: skip
def test_choices_are_in_the_help(call, option, choices):
    _, out, _ = call("fit", "--help")
    assert f"<{choices}>" in out[out.index(option) :]


@pytest.mark.parametrize("option", ["method", "moves", "start", "cache", "device", "dtype", "bad-rows", "preset"])
def test_a_word_that_is_no_choice_is_refused_with_those_that_are(here, call, option):
    code, _, err = call(*FIT, f"--{option}", "magic")
    assert code == 2
    assert "magic" in err


def test_features_without_noise_must_be_said_to_have_none(here, call):
    table = pq.read_table(here / "rows.parquet").drop_columns(["y_error"])
    pq.write_table(table, here / "bare.parquet")
    words = ("fit", "bare.parquet", *FIT[2:])
    code, _, err = call(*words)
    assert code == 1
    assert "no errors were found for y" in err
    assert "--error y=none" in err
    assert not (here / "new.safetensors").exists()
    assert call(*words, "--error", "y=none")[0] == 0
    assert call("score", "new.safetensors", "bare.parquet")[0] == 0  # the model remembers what was meant
    code, _, err = call("score", "m.safetensors", "bare.parquet")
    assert code == 1
    assert "no errors were found for y" in err
    assert call("select", "bare.parquet", "-c", "x,y", "-k", "1")[0] == 1
    assert call("fit", "bare.parquet", *FIT[2:], "-c", "z,x", "--derive", "z=2*y")[0] == 1


def test_a_score_that_cannot_be_computed_is_refused(here, call):
    flat = xd.Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.0], [0.0, 0.0]]], labels=["x", "y"])
    flat.save(here / "flat.safetensors")
    errors = np.full(200, 0.1)
    errors[150] = 0.0
    table = pq.read_table(here / "rows.parquet")
    table = table.set_column(table.column_names.index("y_error"), "y_error", pa.array(errors))
    pq.write_table(table, here / "exact.parquet", row_group_size=60)
    batch = xd.open(here / "exact.parquet", ["x", "y"]).load().batch
    with pytest.raises(ValueError, match="row 150 has no density"):
        flat.score(batch)
    code, out, err = call("score", "flat.safetensors", "exact.parquet")
    assert code == 1
    assert out == ""
    assert "row 150 of exact.parquet has no density" in err
    assert call("score", "flat.safetensors", "exact.parquet", "--per-row", "scores.parquet")[0] == 1
    assert not (here / "scores.parquet").exists()


@pytest.mark.parametrize("command", ["score", "posterior", "members"])
def test_a_density_that_overflows_is_refused_with_its_row(here, call, command):
    far = np.zeros(200)
    far[150] = 1e200
    table = pq.read_table(here / "rows.parquet")
    table = table.set_column(table.column_names.index("y"), "y", pa.array(far))
    pq.write_table(table, here / "far.parquet", row_group_size=60)
    xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=["x", "y"]).save(here / "round.safetensors")
    options = [] if command == "score" else ["-o", "answers.parquet"]
    code, out, err = call(command, "round.safetensors", "far.parquet", *options)
    assert code == 1
    assert out == ""
    assert "row 150 of far.parquet has no density" in err
    assert not (here / "answers.parquet").exists()


# Files of options


WRONG = [
    "fit = 5", "fit = []", "columns = " + "[" * 5000 + "]" * 5000, "[fit]\nerror = [['a']]", "[fit]\nepochs = 'many'",
    "[fit]\nepochs = [1, 2]", "[fit.where]\nx = 1", "[fit]\nepochs = " + "9" * 5000, "x =", "\x00",
    "[[fit]]\nseed = 1", "'\\u001b[31m' = 1", "[fit]\nmethod = 'magic'", "[fit]\nseed = -1",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20].encode("unicode_escape").decode())
def test_files_of_options_that_are_wrong(here, call, text):
    (here / "options.toml").write_text(text)
    code, _, err = call(
        "fit", "rows.parquet", "-c", "x,y", "-k", 1, "-o", "new.safetensors", "--config", "options.toml"
    )
    assert code == 2, err
    assert "Traceback" not in err
    assert "\x1b" not in err


# Hostile models


@pytest.mark.parametrize(
    "forged",
    [5, "x", [1], {"columns": 5}, {"columns": "x"}, {"columns": ["x", 5]}, {"error": 5}, {"error": {"x": {"a": 1}}},
     {"unit": []}, {"derive": 5}, {"derive": [{"x": [1]}]}, {"preset": 5}, {"preset": "none"},
     {"error_pattern": "{name:2000000000}"}, {"memory": True}, {"where": "x > 0"}, {"offset": {"x": "y +"}}],
    ids=str,
)  # fmt: skip
def test_a_forged_way_to_read_is_refused(here, call, forged):
    MIXTURE.with_(meta={"open": forged}).save(here / "forged.safetensors")
    code, _, err = call("score", "forged.safetensors", "rows.parquet")
    assert code == 1, err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["errors", "bootstrap"])
@pytest.mark.parametrize("where", [5, ["x > 0"], {"x": 0}], ids=str)
def test_a_forged_condition_on_rows_is_refused(here, call, command, where):
    MIXTURE.with_(meta={"where": where}).save(here / "forged.safetensors")
    code, _, err = call(command, "forged.safetensors", "rows.parquet")
    assert code == 1, err
    assert "its rows were chosen where" in err


def test_terminal_escapes_are_shown_and_not_obeyed(here, call):
    evil = "\x1b]0;owned\x07"
    labels, units = [f"x{evil}", "y"], [f"m{evil}", "\u202ekm"]
    meta = {"notes": [evil], "data": [evil], "where": evil}
    xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=labels, units=units, meta=meta).save(here / "evil.safetensors")
    table = pq.read_table(here / "rows.parquet").rename_columns([f"x{evil}", "y", f"x{evil}_error", "y_error"])
    pq.write_table(table, here / "evil.parquet")
    said = [
        call("info", "evil.safetensors"),
        call("info", "evil.parquet"),
        call("condition", "evil.safetensors", "y=1"),
        call("condition", "evil.safetensors", "q=1"),
        call("score", "evil.safetensors", "rows.parquet"),
        call("fit", "evil.parquet", "-c", f"x{evil},y", *FIT[4:]),
        call("fit", "evil.parquet", "-c", "z", *FIT[4:]),
        call("fit", "evil.parquet", "-c", "y", "--method", evil, *FIT[4:]),
        call("info", f"{evil}.parquet"),
    ]
    for code, out, err in said:
        assert code in EXIT_CODES
        assert not {"\x1b", "\x07", "\u202e"} & set(out + err), (out, err)
    assert sum("\\x1b]0;owned\\x07" in out + err for _, out, err in said) == len(said)


def test_a_name_of_several_lines_is_one_line(here, call):
    """Else a label could say what a command does not."""
    names = ["x\nall checksums agree", "y"]
    xd.Mixture([1.0], [[0.0, 0.0]], [np.eye(2)], labels=names).save(here / "lines.safetensors")
    table = pq.read_table(here / "rows.parquet")
    said = [name.replace("x", names[0], 1) if name.startswith("x") else name for name in table.column_names]
    pq.write_table(table.rename_columns(said), here / "lines.parquet")
    for words in (("info", "lines.safetensors"), ("info", "lines.parquet"), ("condition", "lines.safetensors", "y=0"),
                  ("fit", "lines.parquet", "-c", ",".join(names), "--error", f"{names[0]}=0.1", *FIT[4:])):  # fmt: skip
        code, out, err = call(*words)
        assert code == 0, err
        assert "x\\nall checksums agree" in out + err
        assert not [line for line in (out + err).splitlines() if line.startswith("all")]


def test_labels_that_fits_cannot_hold_are_named(here, call):
    xd.Mixture([1.0], [[0.0]], [[[1.0]]], labels=["\u03bc"]).save(here / "greek.safetensors")
    code, _, err = call("export", "greek.safetensors", "-o", "greek.fits")
    assert code == 1
    assert "FITS holds no text but ASCII, and '\u03bc' is a label or a unit" in err
    assert call("export", "greek.safetensors", "-o", "greek.npz")[0] == 0


# Pipes and signals


def _run(*words, **options):
    line = [sys.executable, "-m", "xdeconv", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.mark.processes
def test_a_closed_standard_output_is_one_line(here):
    done = subprocess.run(
        f"{sys.executable} -m xdeconv info {MODEL} >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr == "xdeconv: standard output is closed: there is nowhere to write the result to\n"


@pytest.mark.processes
def test_a_closed_standard_error_stops_nothing(here):
    line = f"{sys.executable} -m xdeconv sample {MODEL} -o draws.parquet 2>&-"
    assert subprocess.run(line, shell=True, check=False).returncode == 0
    assert (here / "draws.parquet").exists()


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize(("words", "code"), [(" ".join(FIT), 0), ("fit --nonsense", 2)])
def test_a_full_disk_behind_standard_error_stops_nothing(here, words, code):
    done = subprocess.run(
        f"{sys.executable} -m xdeconv {words} 2> /dev/full", shell=True, capture_output=True, check=False
    )
    assert done.returncode == code
    assert (here / "new.safetensors").exists() == (code == 0)


@pytest.mark.processes
def test_a_reader_that_goes_away_is_silent(here):
    line = f"({sys.executable} -m xdeconv info {MODEL}; echo $? >&2) | true"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.split() == ["141"]


@pytest.mark.processes
def test_an_interrupt_while_the_command_is_imported_shows_no_trace(here):
    program = """
import builtins, runpy
real = builtins.__import__
def interrupted(name, *more, **words):
    if name == "typer":
        raise KeyboardInterrupt
    return real(name, *more, **words)
builtins.__import__ = interrupted
runpy.run_module("xdeconv.__main__", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_behind_standard_output_is_one_line(here):
    line = f"{sys.executable} -m xdeconv info {MODEL} > /dev/full"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "xdeconv: No space left on device\n"


def _start(here, *words):
    line = [sys.executable, "-m", "xdeconv", "fit", STARS, "-c", ",".join(FEATURES), "-k", "3", "--tol", "0",
            "--start", "random", "--validation", "0", "--moves", "none", "--checkpoint-seconds", "1000",
            "--epochs", "1000000", "-o", "long.safetensors", *words]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (here / "long.safetensors.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    return process


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_to_end_saves_what_the_fit_has_reached(here, number):
    from xdeconv.fitting.state import load_state

    process = _start(here)
    first = load_state(here / "long.safetensors.checkpoint").epoch
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "--resume continues from" in err
    assert "train log-likelihood" in out
    assert load_state(here / "long.safetensors.checkpoint").epoch > first
    assert xd.load(here / "long.safetensors").k == 3


INTERRUPTED = """
import atexit
from importlib import import_module
from xdeconv.cli import main

def interrupted(*_, **__):
    print("so far")
    raise KeyboardInterrupt

atexit.register(print, "the end of Python")
import_module("xdeconv.cli.app").app = interrupted
main()
"""


@pytest.mark.processes
def test_an_interrupted_command_does_not_wait_for_threads_that_may_still_read(tmp_path):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "so far\n")
    assert done.stderr == "xdeconv: interrupted\n"


LOST = """
import os, signal, time
from importlib import import_module
from xdeconv.cli import main

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

def interrupted(*_, **__):
    Dropped()
    time.sleep(10)
    print("went on")

import_module("xdeconv.cli.app").app = interrupted
main()
"""


@pytest.mark.processes
def test_a_signal_that_comes_while_an_object_is_dropped_is_heard():
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "xdeconv: interrupted\n")


@pytest.mark.processes
@pytest.mark.parametrize("apart", [0.0, 0.001, 0.01, 0.05])
def test_a_second_interrupt_leaves_no_partial_file(here, apart):
    process = _start(here)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(apart)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert [path.name for path in here.iterdir() if "partial" in path.name] == []


def test_a_third_interrupt_while_the_second_ends_the_command_is_one(monkeypatch):
    """It had ended in a traceback of Python's: three together, as from a key that is held down."""

    class Last(warnings.catch_warnings):
        def __exit__(self, *_):
            super().__exit__(*_)
            signal.raise_signal(signal.SIGINT)

    def interrupted(*_):
        raise KeyboardInterrupt

    app = import_module("xdeconv.cli.app")
    monkeypatch.setattr(app, "_code", interrupted)
    monkeypatch.setattr(app, "warnings", SimpleNamespace(catch_warnings=Last, showwarning=None))
    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:
        run([])
    assert repr(ended.value) == "SystemExit(130)"


def test_the_handlers_of_others_are_put_back(here):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        run(["--version"])
    assert signal.getsignal(signal.SIGTERM) == before


# Writers side by side


def test_two_prepare_into_one_folder_are_refused(here, call):
    from xdeconv.system.files import locked

    with locked(here / "store", "preparation"):
        code, _, err = call("prepare", STARS, "store")
    assert code == 3
    assert "another preparation is writing" in err
    assert not (here / "store").exists()
    assert call("prepare", STARS, "new/store")[0] == 0


def test_a_lock_makes_no_folder(tmp_path):
    from xdeconv.system.files import locked

    with pytest.raises(FileNotFoundError, match="there is no folder"), locked(tmp_path / "nowhere" / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['error = "x=0.3"', 'error = ["x=0.3"]', 'error = ["x=0.3", "y=0.2"]'])
def test_an_option_that_is_repeated_may_be_one_word_in_a_file(here, call, text):
    (here / "options.toml").write_text(f"[fit]\n{text}\n")
    code, _, err = call(*FIT, "--config", "options.toml")
    assert code == 0, err
    assert "sd 0.3" in err


def test_an_error_does_not_show_a_whole_long_expression(here, call):
    code, _, err = call(*FIT, "--where", "(" * 5000)
    assert code == 1
    assert len(err) < 500


@pytest.mark.parametrize(
    "problem",
    [MemoryError(), RuntimeError("can't start new thread"), OSError(12, "Cannot allocate memory", "rows.parquet"),
     RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80 bytes"),
     pa.ArrowMemoryError("realloc of size 16777216 failed"),
     pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable")],
)  # fmt: skip
def test_too_little_memory_is_said_to_be_that(capsys, problem):
    from xdeconv.cli.app import _end

    assert _end(problem, False) == 5
    said = capsys.readouterr().err
    assert said.startswith("xdeconv: there is not enough memory")
    assert "--traceback" not in said


def test_draws_come_in_blocks(here, call, monkeypatch):
    monkeypatch.setattr("xdeconv.cli.sample.BLOCK_ROWS", 100)
    mixture = xd.Mixture([0.5, 0.5], [[0.0, 0.0], [9.0, 9.0]], [np.eye(2), np.eye(2)], labels=["x", "y"])
    mixture.save(here / "two.safetensors")
    assert call("sample", "two.safetensors", "-n", "250", "--seed", "3", "-o", "draws.arrow")[0] == 0
    with pa.OSFile(str(here / "draws.arrow")) as file:
        reader = pa.ipc.open_file(file)
        blocks = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    assert [block.num_rows for block in blocks] == [100, 100, 50]
    drawn = np.stack([blocks[0].column(name).to_numpy() for name in "xy"], axis=1)
    np.testing.assert_array_equal(drawn, mixture.sample(100, seed=3))


def test_a_damaged_model_is_a_file_that_cannot_be_read(here, call):
    whole = (here / "m.safetensors").read_bytes()
    for damaged in (whole[:-9], whole[:-1] + bytes([whole[-1] ^ 1]), b"nothing"):
        (here / "m.safetensors").write_bytes(damaged)
        code, _, err = call("info", "m.safetensors")
        assert (code, err.count("\n")) == (3, 1), err


def test_what_a_fit_notes_is_told_once(here, call):
    table = pq.read_table(here / "rows.parquet")
    far = np.r_[np.full(5, -999.0), table["y"].to_numpy()[5:30]]
    few = table.slice(0, 30).set_column(table.column_names.index("y"), "y", pa.array(far))
    pq.write_table(few, here / "few.parquet")
    code, _, err = call("fit", "few.parquet", "-c", "x,y", "-k", "2", "--validation", "0", "-o", "new.safetensors")
    assert code == 0, err
    assert "note: 30 rows are few for the 11 free numbers of 2 components" in err
    for note in xd.load(here / "new.safetensors").meta["notes"]:
        assert err.count(note) == 1, err  # -999 was said before the fit began
    code, _, err = call(
        "select", "few.parquet", "-c", "x,y", "-k", "2", "--criterion", "bic", "--model", "s.safetensors"
    )
    assert code == 0, err
    assert "30 rows are few for the 11 free numbers of 2 components" in err
