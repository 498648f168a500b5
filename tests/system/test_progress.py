"""Progress: count and time stay on a narrow terminal, log files get plain lines, text of others is not obeyed."""

import io
import sys
import types

import pytest

import xdeconv as xd
from xdeconv.fitting.history import Epoch
from xdeconv.fitting.progress import describe_epoch, show_progress
from xdeconv.system import progress as module
from xdeconv.system.progress import Progress
from xdeconv.system.text import one_line, printable

LONG = "epoch 120  log-likelihood -12.3456  held out -12.4567  12,345,678 rows/s  3 moves"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    def use(file):
        monkeypatch.setattr(sys, "stderr", file)
        return file

    return use


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_bar_keeps_count_and_time(stderr, monkeypatch, columns):
    page = stderr(Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with Progress(total=20_000, delay=0.0) as shown:
        shown.update(LONG, done=12_345)
    lines = [line for line in page.getvalue().splitlines() if "12,345/20,000" in line]
    assert lines
    assert "0:00:00" in lines[-1]
    assert "epoch 120" in lines[-1]


def test_what_is_held_out_is_read_on_eighty_columns(stderr, monkeypatch):
    """It was cut after two digits."""
    page = stderr(Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with Progress(total=300, delay=0.0) as shown:
        shown.update("epoch 150  log-likelihood -5.9899  held out -6.0367  123,456 rows/s", done=150)
    assert "held out -6.0367" in page.getvalue()


def test_a_log_file_gets_plain_lines(stderr):
    page = stderr(io.StringIO())
    with Progress(delay=0.0, every_step=True) as shown:
        for _ in range(3):
            shown.update("a step [red]", done=1, total=3)
        shown.update("soon after")
    assert [line.split(" s  ", 1)[-1] for line in page.getvalue().splitlines()] == [
        f"{n}/3  a step [red]" for n in (1, 2, 3)
    ]


def test_lines_come_every_few_seconds(stderr, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    page = stderr(io.StringIO())
    with Progress(total=100) as shown:
        for _ in range(100):
            clock[0] += 0.25
            shown.update("work", done=1)
    times = [float(line.split()[0]) for line in page.getvalue().splitlines()]
    assert times == [2.0, 7.0, 12.0, 17.0, 22.0]


def test_short_or_unwanted_work_is_silent(stderr):
    for file in (io.StringIO(), Terminal()):
        stderr(file)
        with Progress(total=2) as shown:
            shown.update("all", done=2)
        with Progress(total=2, shown=False, delay=0.0) as shown:
            shown.update("all", done=2)
        assert file.getvalue() == ""


def test_a_closed_standard_error_stops_nothing(stderr):
    stderr(None)
    with Progress(total=2, delay=0.0) as shown:
        shown.update("all", done=2)


@pytest.mark.parametrize(
    ("problem", "terminal"),
    [(OSError(28, "No space left on device"), False), (BrokenPipeError(), False), (ValueError("closed"), False),
     (OSError(5, "Input/output error"), True)],
)  # fmt: skip
def test_nobody_who_hears_stops_nothing(stderr, terminal, problem):
    """A full disk under a log, a reader or a terminal that has gone: a fit had ended with exit code 3, and no word."""

    class Gone(io.StringIO):
        def write(self, text):
            raise problem

        def isatty(self):
            return terminal

    stderr(Gone())
    with Progress(total=2, delay=0.0, every_step=True) as shown:
        shown.update("one", done=1)
        shown.update("all", done=1)
    assert shown.done == 2


def test_a_notebook_is_written_in_place(stderr, monkeypatch):
    written = []

    class Handle:
        def update(self, page, raw):
            written.append(page["text/plain"])

    def display(page, raw, display_id):
        written.append(page["text/plain"])
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    page = stderr(io.StringIO())
    with Progress(total=4, delay=0.0) as shown:
        for _ in range(4):
            shown.update("work", done=1)
    assert written[0].startswith("1/4")
    assert written[-1].startswith("4/4")
    assert page.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_text_of_others_is_not_obeyed(stderr, terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    page = stderr(Terminal() if terminal else io.StringIO())
    with Progress(total=4, delay=0.0) as shown:
        shown.update("label \x1b]0;title\x07 \u202e", done=1)
    assert "\x1b]0" not in page.getvalue()
    assert "\u202e" not in page.getvalue()
    assert "\\x1b]0;title\\x07" in page.getvalue()


def test_escapes():
    assert printable("σ U [km/s] µas") == "σ U [km/s] µas"
    assert printable("a\x00b\x9bc\ud800") == "a\\x00b\\x9bc\\ud800"
    assert one_line("two\n  lines\x1b[2J") == "two lines\\x1b[2J"


def test_epochs_count_on_after_a_resume(stderr):
    page = stderr(io.StringIO())
    with show_progress(True, 200, 1000) as show:
        show(Epoch(17, 3.0, -1.5, None, 0, None, ""))
    assert "18/200  epoch 18" in page.getvalue()
    assert "1,234,568 rows/s" in describe_epoch(Epoch(1, 1.0, -1.5, None, 0, None, ""), 1234567.8)


def test_a_fit_that_runs_until_it_converges_promises_no_count(stderr):
    page, rows = stderr(io.StringIO()), [[0.0], [1.0], [3.0]]
    xd.fit(rows, 1, verbose=True)
    xd.fit(rows, 1, epochs=7, tol=0, verbose=True)
    first, second = (line.split("  ")[-3] for line in page.getvalue().splitlines() if "epoch 1 " in line)
    assert (first, second) == ("1", "1/7")
