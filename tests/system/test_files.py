"""Files: interrupts leave nothing behind, later versions are refused by name, what is not ours is not overwritten."""

import os
import threading

import pytest

import xdeconv as xd
from xdeconv.system import files
from xdeconv.system.files import LaterVersion, refuse_foreign, refuse_later_version, write_atomically

MIXTURE = xd.Mixture([1.0], [[0.0]], [[[1.0]]])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupt_while_writing_leaves_no_partial_file(tmp_path, monkeypatch, step):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"old"


def test_an_interrupt_while_the_partial_file_is_removed(tmp_path, monkeypatch):
    unlink, calls = files.Path.unlink, []

    def interrupted(self, missing_ok=False):
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        unlink(self, missing_ok=missing_ok)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, "unlink", interrupted)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("found", ["2", 2, 7])
def test_a_later_version_is_refused_by_name(found):
    with pytest.raises(LaterVersion, match=r"m.safetensors was written by a later xdeconv \(version [27]"):
        refuse_later_version(found, 1, "m.safetensors")


@pytest.mark.parametrize("found", [None, "", "one", -1, 0, True, 1.0, "9" * 5000, "²", []])
def test_what_is_not_a_version_is_damage(found):
    with pytest.raises(ValueError, match="is damaged") as problem:
        refuse_later_version(found, 1, "m.safetensors")
    assert not isinstance(problem.value, LaterVersion)


def test_a_model_of_a_later_version_is_refused(tmp_path, monkeypatch):
    now = files.VERSION
    monkeypatch.setattr(files, "VERSION", now + 1)
    MIXTURE.save(tmp_path / "m.safetensors")
    monkeypatch.setattr(files, "VERSION", now)
    with pytest.raises(LaterVersion, match="later xdeconv"):
        xd.load(tmp_path / "m.safetensors")


def test_what_is_not_ours_is_not_overwritten_by_a_checkpoint(tmp_path):
    stars, model = tmp_path / "stars.parquet", tmp_path / "m.safetensors"
    stars.write_bytes(b"PAR1 precious")
    MIXTURE.save(model)
    for path in (stars, model):
        before = path.read_bytes()
        with pytest.raises(FileExistsError, match="is not an xdeconv checkpoint"):
            xd.fit([[0.0], [1.0], [2.0]], 1, checkpoint=path)
        assert path.read_bytes() == before
    refuse_foreign(tmp_path / "nothing", "checkpoint")
    xd.fit([[0.0], [1.0], [2.0]], 1, checkpoint=tmp_path / "c")
    xd.fit([[0.0], [1.0], [2.0]], 1, checkpoint=tmp_path / "c")


def test_threads_that_write_one_file_do_not_take_it_from_each_other(tmp_path):
    problems = []

    def write(content):
        try:
            for _ in range(50):
                write_atomically(tmp_path / "file", content)
        except OSError as problem:
            problems.append(problem)

    contents = [bytes([value]) * 1000 for value in range(4)]
    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    for name in ("a" * 255, "é" * 127):
        write_atomically(tmp_path / name, b"content")
        assert (tmp_path / name).read_bytes() == b"content"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_file_of_ours_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = in_time(lambda: files.kind_of(tmp_path / "pipe"))
    assert found == [None]
    with pytest.raises(FileExistsError, match="is not an xdeconv checkpoint"):
        refuse_foreign(tmp_path / "pipe", "checkpoint")


def in_time(function):
    """What a function returns, in a list; nothing where it still waits after some seconds."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(20)
    return found
