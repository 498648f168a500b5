"""CUDA C for many dimensions, pinned to the reference: on a GPU as it is, elsewhere as C++, lane after lane."""

import ctypes
import shutil
import subprocess

import pytest
import torch

from problems import problem
from xdeconv import kernels
from xdeconv.kernels.cuda import compiling, cores, large, lines, registers, tiles
from xdeconv.kernels.cuda.compiling import Memory
from xdeconv.kernels.cuda.cores import Cores
from xdeconv.kernels.cuda.lines import Form, Lines
from xdeconv.kernels.cuda.registers import Registers
from xdeconv.kernels.cuda.sharing import shared_out
from xdeconv.kernels.cuda.tiles import Layout, Tiles
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

REFERENCE, DENSE = Options(backend="reference"), Options(backend="cuda", skip=False)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
H200 = Memory(232448, 233472, 132)
KINDS: dict[str, dict] = {
    "full": {"d": 11},
    "whole blocks": {"d": 12, "n": 40},
    "diagonal": {"d": 13, "noise": "diagonal", "weight": True},
    "missing": {"d": 14, "missing": 0.4, "prior": "rows"},
    "diagonal, missing": {"d": 15, "noise": "diagonal", "missing": 0.4},
    "no noise, missing": {"d": 11, "noise": "none", "missing": 0.3, "prior": "labels"},
    "several tiles of a lane": {"d": 33},
    "many tiles of a lane": {"d": 50, "n": 9, "k": 2},
    "tiles in memory": {"d": 70, "n": 5, "k": 2, "missing": 0.2},
}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Compiles a file as C++ for one kind of rows; lanes take turns forwards or backwards."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("tiles")

    def build(file, constants, backwards):
        name = folder / "_".join([file.removesuffix(".cu"), *map("".join, constants), str(backwards)])
        if not name.with_suffix(".so").exists():
            name.with_suffix(".cc").write_text(compiling.text_of(file))
            defined = [f"-D{word}={value}" for word, value in constants] + ["-DBACKWARDS"] * backwards
            command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing", *defined]
            subprocess.run([*command, "-o", name.with_suffix(".so"), name.with_suffix(".cc")], check=True)
        return ctypes.CDLL(str(name.with_suffix(".so")))

    return build


@pytest.fixture(params=[False, True], ids=["forwards", "backwards"])
def anywhere(request, monkeypatch, device, built):
    """CUDA C on a GPU; on a CPU the same source through a C++ compiler."""
    if device == "cuda":
        return

    def kernel(file, name, constants, device, threads=32):
        function = getattr(built(file, (*constants, (name.upper(), "1")), request.param), name)

        def launch(blocks, shared, arguments):
            numbers = [a.data_ptr() if torch.is_tensor(a) else a for a in arguments]
            function(*map(ctypes.c_longlong, numbers))

        return launch

    monkeypatch.setattr(compiling, "compiles", lambda device: True)
    monkeypatch.setattr(cores, "capability_of", lambda device: (7, 5))
    for module in (tiles, registers, lines, cores):
        monkeypatch.setattr(module, "kernel", kernel)
        monkeypatch.setattr(module, "memory_of", lambda device: H200)


@pytest.fixture(params=[1, 2, 8, 32])
def lanes(request, monkeypatch):
    """Tiles in all dimensions, with so many lanes of a pair, whatever would be chosen."""
    monkeypatch.setattr(registers, "LARGEST", {4: 0, 8: 0})
    monkeypatch.setattr(lines, "form_for", lambda batch: None)
    monkeypatch.setattr(tiles, "layout_for", lambda batch: layout(batch, request.param))
    return request.param


def layout(batch, lanes):
    found = Layout(-(-batch.p // 4), lanes, batch.x.element_size(), 2)
    if found.shared > H200.block:
        pytest.skip("so many pairs are larger than shared memory")
    return found


def pairs_of(p, dtype, device, kind):
    found = large._pairs_of(*p.parameters(), p.batch(dtype=dtype, device=device), launch=None)
    assert isinstance(found, kind)
    return found


def check(p, dtype, device, kind=Tiles):
    """Errors relative to the size of each sum over all rows, not relative to nearly dead components."""
    theta, batch = p.parameters(), p.batch(dtype=dtype)
    exact, there = batch.to(dtype=torch.float64), batch.to(device=device)
    pairs_of(p, dtype, device, kind)
    ours = large.accumulate(*theta, there, DENSE, launch=None)
    right = kernels.accumulate(*theta, exact, REFERENCE)
    for name in ("rows", "loglik", "q", "g", "G"):
        a, b = getattr(ours, name).cpu(), getattr(right, name)
        assert float((a - b).abs().max()) <= TOLERANCE[dtype] * max(batch.n, float(b.abs().max())), name
    joint = kernels.log_joint(*theta, exact, REFERENCE)
    found = large.log_joint(*theta, there, DENSE, launch=None).cpu().double()
    torch.testing.assert_close(found, joint, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_the_reference(name, lanes, anywhere, device):
    check(problem(**({"n": 37, "k": 3, "seed": 90} | KINDS[name])), torch.float64, device)


@pytest.mark.parametrize("d", [11, 40])
def test_float32(d, lanes, anywhere, device):
    check(problem(n=37, k=2, d=d, missing=0.2, seed=91), torch.float32, device)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind["d"] <= 15])
def test_every_kind_in_registers(name, monkeypatch, anywhere, device):
    monkeypatch.setattr(registers, "LARGEST", {4: 20, 8: 20})
    check(problem(**({"n": 37, "k": 3, "seed": 90} | KINDS[name])), torch.float64, device, Registers)


@pytest.mark.parametrize("d", [*range(11, 66), 128])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_form_has_room_for_every_line(d, dtype):
    form = lines.form_for(Batch(x=torch.zeros(d, 1, dtype=dtype)))
    assert form is None or (form.lanes * form.lines >= d and H200.warps(form.shared(d, dtype.itemsize)))
    assert (form is None) == (d <= 24 or d > 64)


FORMS = {
    "sixteen lanes": (15, Form(16, 1, True)),
    "a line of a lane": (30, Form(32, 1, True)),
    "two lines": (30, Form(16, 2, True)),
    "three lines": (22, Form(8, 3, False)),
    "four lines": (30, Form(8, 4, False)),
    "two warps": (45, Form(64, 1, False)),
    "all of 64": (64, Form(32, 2, False)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("kind", [{}, {"noise": "diagonal", "weight": True}, {"missing": 0.3}], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_lines_equal_the_reference(name, kind, dtype, monkeypatch, anywhere, device):
    d, form = FORMS[name]
    monkeypatch.setattr(registers, "LARGEST", {4: 0, 8: 0})
    monkeypatch.setattr(lines, "form_for", lambda batch: form)
    check(problem(**({"n": 13, "k": 2, "d": d, "seed": 96} | kind)), dtype, device, Lines)


BLOCKS = {
    "four pairs": (15, cores.Form(4, True)),
    "two pairs": (24, cores.Form(2, True)),
    "two pairs, sums in shared memory": (13, cores.Form(2, False)),
    "a pair": (30, cores.Form(1, True, wide=True)),
    "all of 64": (64, cores.Form(1, False, wide=True)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("kind", [{}, {"noise": "diagonal", "weight": True}, {"missing": 0.3}], ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_tensor_cores_equal_the_reference(name, kind, dtype, monkeypatch, anywhere, device):
    d, form = BLOCKS[name]
    monkeypatch.setattr(registers, "LARGEST", {4: 0, 8: 0})
    monkeypatch.setattr(cores, "form_for", lambda batch: form)
    check(problem(**({"n": 13, "k": 2, "d": d, "seed": 98} | kind)), dtype, device, Cores)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensor_cores_take_what_fits_where_they_are_quick(capability, dtype, monkeypatch):
    monkeypatch.setattr(cores, "capability_of", lambda device: capability)
    for d in range(registers.LARGEST[dtype.itemsize] + 1, 129):
        form = cores.form_for(Batch(x=torch.zeros(d, 1, dtype=dtype)))
        first = 28 if dtype == torch.float32 else 0
        assert (form is not None) == (capability != (7, 5) and first < d <= cores.LARGEST)
        if form is not None:
            assert form.shared(-(-d // cores.BLOCK), moments=True) <= H200.block
            assert form.wide == (capability == (9, 0))


@pytest.mark.parametrize("d", [11, 20])
def test_float32_in_registers(d, anywhere, device):
    check(problem(n=70, k=2, d=d, missing=0.2, seed=91), torch.float32, device, Registers)


def test_all_of_128_dimensions(monkeypatch, anywhere, device):
    check(problem(n=3, k=2, d=128, seed=92), torch.float64, device)


def test_a_failed_factor_is_nan(lanes, anywhere, device):
    check_failed(device, Tiles)


def test_a_failed_factor_in_registers_is_nan(anywhere, device):
    check_failed(device, Registers)


def check_failed(device, kind):
    p = problem(n=12, k=2, d=11, seed=93)
    p.covariances[1, 10, 10] = -500.0
    joint = pairs_of(p, torch.float64, device, kind).log_joint()
    assert bool(joint[1].isnan().all())
    assert bool(joint[0].isfinite().all())


@pytest.mark.parametrize("d", [11, 22])
def test_nothing_reads_fresh_memory(d, monkeypatch, anywhere, device):
    p = problem(n=20, k=2, d=d, missing=0.2, seed=94)
    batch = p.batch(device=device)
    clean = large.accumulate(*p.parameters(), batch, DENSE, launch=None).packed
    fresh = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda t, *size, **kind: fresh(t, *size, **kind).fill_(torch.nan))
    assert torch.equal(large.accumulate(*p.parameters(), batch, DENSE, launch=None).packed, clean)


@pytest.mark.parametrize("d", [11, 22])
def test_rows_without_a_share_add_nothing(d, anywhere, device):
    """Also where their pairs are NaN."""
    p = problem(n=40, k=2, d=d, seed=95)
    p.covariances[1] = -500.0 * torch.eye(d).numpy()
    pairs = pairs_of(p, torch.float64, device, Registers if d == 11 else Tiles)
    share = torch.ones(2, 40, dtype=torch.float64, device=device)
    share[1] = 0.0
    share[0, 1::2] = 0.0
    g, G = pairs.moments(share)
    assert bool(G[0].isfinite().all())
    assert not bool(g[1].any())
    assert not bool(G[1].any())


@pytest.mark.parametrize(("d", "lanes"), [(12, 1), (20, 1), (64, 8), (128, 32)])
def test_fewer_dimensions_need_fewer_lanes(d, lanes):
    assert Layout.of(d // 4, 4, H200).lanes == lanes


def test_pairs_larger_than_shared_memory_go_another_way(monkeypatch, anywhere, device):
    p = problem(n=3, k=2, d=128, seed=97)
    assert tiles.fits(p.batch(device=device))
    monkeypatch.setattr(tiles, "memory_of", lambda device: Memory(65536, 65536, 40))  # of an older GPU
    assert not tiles.fits(p.batch(device=device))
    assert large._compiled(*p.parameters(), p.batch(device=device)) is None


@pytest.mark.parametrize("size", [4, 8])
def test_every_layout_fits_in_shared_memory(size):
    for blocks in range(3, 33):
        found = Layout.of(blocks, size, H200)
        assert found.shared <= H200.block
        assert found.warps >= H200.processors


@pytest.mark.parametrize(("blocks", "pairs", "kept"), [(3, 32, 2), (8, 8, 5), (10, 4, 2), (17, 2, 5)])
def test_every_product_is_summed_once(blocks, pairs, kept):
    slots = shared_out(blocks, pairs, kept)
    assert len(slots) == 32 * kept
    done = sorted((t, pair) for t, first, step in slots for pair in range(first, pairs, step))
    assert done == [(t, pair) for t in range(blocks * (blocks + 1) // 2) for pair in range(pairs)]
