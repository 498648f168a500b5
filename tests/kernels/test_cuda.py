"""What only the Triton backend promises: slices, queues, orders, graphs, and refusals that say why."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from problems import CASES, problem
from xdeconv import kernels
from xdeconv.kernels import Groups, cuda
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
]
REFERENCE, CUDA = Options(backend="reference"), Options(backend="cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def weighted_problem(n: int, k: int, d: int = 4, device: str = "cuda") -> tuple[tuple[torch.Tensor, ...], Batch]:
    p = problem(n=n, k=k, d=d, missing=0.1, weight=True, seed=40)
    return tuple(t.to(device) for t in p.parameters()), p.batch(dtype=torch.float32, device=device)


@pytest.mark.parametrize("skip", [True, False])
def test_slices_add_up(monkeypatch, device, skip):
    p = problem(n=70, k=3, d=2, weight=True, prior="rows", seed=41)
    batch = p.batch(device=device)
    options = Options(backend="cuda", skip=skip)
    whole = kernels.accumulate(*p.parameters(), batch, options).packed
    monkeypatch.setattr(cuda, "SLICE", 32)
    torch.testing.assert_close(kernels.accumulate(*p.parameters(), batch, options).packed, whole, rtol=1e-9, atol=1e-9)
    for function in (kernels.log_prob, kernels.log_joint):
        right = function(*p.parameters(), p.batch(), REFERENCE)
        torch.testing.assert_close(function(*p.parameters(), batch, options).cpu(), right, rtol=1e-9, atol=1e-9)


def test_scale_is_part_of_the_density(device):
    p = CASES["missing diagonal"]
    ours, right = (
        kernels.log_prob(
            *p.parameters(),
            p.batch(device=place).standardized(torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 0.5])),
            options,
        )
        for place, options in ((device, CUDA), ("cpu", REFERENCE))
    )
    torch.testing.assert_close(ours.cpu(), right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight", [True, False])
def test_a_background_takes_its_share_of_rows(device, weight):
    p = problem(n=90, k=5, d=3, missing=0.1, weight=weight, seed=44)
    background = torch.linspace(-30.0, 0.0, 90, dtype=torch.float64)
    log_weights, *others = p.parameters()
    theta = (log_weights + torch.tensor(0.6).log(), *others)
    ours, right = (
        kernels.accumulate(*theta, replace(p.batch(device=place), background=background.to(place)), options)
        for place, options in ((device, CUDA), ("cpu", REFERENCE))
    )
    torch.testing.assert_close(ours.packed.cpu(), right.packed, rtol=1e-9, atol=1e-9)
    assert 1.0 < float(ours.q.sum()) < float(ours.rows) - 1.0
    batch = replace(p.batch(device=device), background=background.to(device))
    exact = kernels.log_prob(*theta, replace(p.batch(), background=background), REFERENCE)
    torch.testing.assert_close(kernels.log_prob(*theta, batch, CUDA).cpu(), exact, rtol=1e-9, atol=1e-9)


def test_order_is_a_permutation_of_pairs_alike(device):
    from xdeconv.kernels.cuda.order import like_beside_like

    random = torch.Generator().manual_seed(0)
    kind = torch.arange(40)[torch.randperm(40, generator=random)] // 2
    there = (kind[:, None] == torch.randint(20, (512,), generator=random)).long()
    words = (there.reshape(40, 16, 32) << torch.arange(32)).sum(2)
    alive = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).to(device)
    order = like_beside_like(alive).cpu().long()
    assert sorted(order.tolist()) == list(range(40))
    assert bool((kind[order[::2]] == kind[order[1::2]]).all())


def test_pairs_that_are_skipped_hold_almost_nothing(device):
    """Of every row, the pairs whose bits are unset together hold no more than 2^-24 of its density."""
    from xdeconv.kernels.cuda import densities as triton_rows

    random = torch.Generator().manual_seed(0)
    n, k = 700 if device == "cpu" else 200_000, 45
    x = 8 * torch.rand(2, n, generator=random)
    noise = 0.2 * torch.rand(2, n, generator=random)
    theta = torch.rand(k, generator=random).log(), 8 * torch.rand(k, 2, generator=random), torch.eye(2).repeat(k, 1, 1)
    batch = Batch(x=x, noise=noise).to(device)
    plan, shape = cuda.plan_for(batch, k, CUDA), triton_rows.shape_of(batch)
    assert plan.skip
    table = triton_rows.table_of(*theta, batch, shape)
    alive = torch.empty(k, plan.padded // 32, dtype=torch.int32, device=device)
    triton_rows.densities(table, triton_rows.tiles_of(batch, shape, plan.padded), batch, shape, plan, alive)
    set_bits = (alive.cpu()[:, :, None] >> torch.arange(32)) & 1
    kept = set_bits.reshape(k, -1).T[:n].bool()
    share = kernels.log_joint(*(t.double() for t in theta), Batch(x=x.double(), noise=noise.double()), REFERENCE)
    lost = share.softmax(1).where(~kept, 0.0).sum(1)
    assert float(lost.max()) < 1.01 * 2.0**-24
    assert float(lost.max()) > 0.5 * 2.0**-24  # all that is allowed is used
    assert 0.02 < float(kept.double().mean()) < 0.9


@pytest.mark.parametrize("skip", [True, False])
def test_rows_that_fill_a_tile_do_no_harm_without_noise(device, skip):
    p = problem(n=37, k=5, d=3, p=2, noise="none", projection="dense", seed=3)
    right = kernels.accumulate(*p.parameters(), p.batch(), REFERENCE)
    ours = kernels.accumulate(*p.parameters(), p.batch(device=device), Options(backend="cuda", skip=skip))
    torch.testing.assert_close(ours.packed.cpu(), right.packed, rtol=1e-8, atol=1e-8)


def test_refusals_say_why(device):
    wide = Batch(x=torch.zeros(129, 3, device=device))
    assert "129 dimensions" in cuda.refuses(wide, 2, 129)
    assert "float16" in cuda.refuses(Batch(x=torch.zeros(2, 3, dtype=torch.float16, device=device)), 2, 2)
    assert cuda.refuses(Batch(x=torch.zeros(10, 3, device=device)), 2, 10) is None
    with pytest.raises(ValueError, match="11 dimensions"):
        kernels.accumulate(torch.zeros(2), torch.zeros(2, 11), torch.eye(11).expand(2, 11, 11), wide, CUDA)


def test_without_triton_it_refuses(monkeypatch):
    monkeypatch.setattr(cuda, "triton", None)
    assert cuda.refuses(Batch(x=torch.zeros(2, 3)), 2, 2) == "triton is not installed"


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("d", range(1, 9))
def test_every_dimension(d, skip, device):
    """Algebra is unrolled for each number of dimensions: one that is not tried here is tried nowhere."""
    theta, batch = weighted_problem(n=40, k=3, d=d, device=device)
    options = Options(backend="cuda", skip=skip)
    right = kernels.accumulate(*theta, batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.accumulate(*theta, batch, options)
    torch.testing.assert_close(ours.packed, right.packed, rtol=2e-4, atol=2e-4 * batch.n)
    log_prob = kernels.log_prob(*theta, batch, options).double()
    right_log_prob = kernels.log_prob(*theta, batch.to(dtype=torch.float64), REFERENCE)
    torch.testing.assert_close(log_prob, right_log_prob, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("skip", [True, False])
def test_many_rows_equal_the_reference(skip, device):
    """Enough rows for the plans that small tests never reach (on a GPU), a number that nothing divides."""
    theta, batch = weighted_problem(n=150_001 if device == "cuda" else 301, k=37, device=device)
    right = kernels.accumulate(*theta, batch.to(dtype=torch.float64), REFERENCE)
    ours = kernels.accumulate(*theta, batch, Options(backend="cuda", skip=skip))
    for name in ("rows", "loglik", "q", "g", "G"):
        a, b = getattr(ours, name), getattr(right, name)
        assert float((a - b).abs().max()) <= 2e-5 * max(batch.n, float(b.abs().max())), name


@needs_gpu
@pytest.mark.parametrize("n", [500, 150_001])
def test_a_graph_replays_the_same_bits(n):
    theta, batch = weighted_problem(n=n, k=37)
    eager = kernels.accumulate(*theta, batch, CUDA).packed.clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernels.accumulate(*theta, batch, CUDA)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stats = kernels.accumulate(*theta, batch, CUDA)
    for _ in range(3):
        stats.packed.fill_(float("nan"))
        graph.replay()
        assert torch.equal(stats.packed, eager)


@needs_gpu
def test_memory_does_not_grow_with_pairs():
    theta, batch = weighted_problem(n=150_001, k=512)
    kernels.accumulate(*theta, batch, CUDA)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernels.accumulate(*theta, batch, CUDA)
    kernels.log_prob(*theta, batch, CUDA)
    assert torch.cuda.max_memory_allocated() - before < 4 * batch.n * 512


def groups_for(n: int, sizes: list[int], background: float) -> Groups:
    random = torch.Generator().manual_seed(3)
    rows = torch.cat([torch.randperm(n, generator=random)[:size].sort().values for size in sizes])
    starts = torch.tensor([0, *sizes]).cumsum(0)
    density = background + torch.randn(len(rows), generator=random, dtype=torch.float64)
    return Groups(rows, starts, density, 0.5 + torch.rand(len(rows), generator=random, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "kind",
    [{}, {"noise": "diagonal", "missing": 0.3}, {"noise": "shared"}, {"noise": "none"}, {"d": 7},
     {"projection": "dense", "p": 2}, {"missing": 0.3, "d": 5}],
    ids=str,
)  # fmt: skip
def test_groups_equal_the_reference(device, kind, dtype):
    p = problem(**({"n": 400, "k": 6, "seed": 3, "weight": True} | kind))
    d = p.parameters()[1].shape[1]
    for m, background in ((2, -3.0), (1, -torch.inf)):
        groups = groups_for(400, [1, 300, 0, 37], background)
        pick = torch.arange(4 * m).view(4, m) % 6
        parameters = tuple(t[pick] for t in p.parameters())
        ours = kernels.for_groups(p.batch(dtype=dtype, device=device), d, CUDA)
        right = kernels.for_groups(p.batch(), d, REFERENCE)
        found = kernels.accumulate_groups(*(t.to(device) for t in parameters), ours, groups)
        wanted = kernels.accumulate_groups(*parameters, right, groups)
        tolerance = 1e-9 if dtype == torch.float64 else 2e-4
        for name in ("loglik", "q", "g", "G"):
            a, b = getattr(found, name).cpu(), getattr(wanted, name)
            assert a.shape == b.shape
            assert float((a - b).abs().max()) < tolerance * (1 + float(b.abs().max())), (name, m)


def test_groups_of_many_components_and_no_groups(device):
    p = problem(n=60, k=6, d=2, seed=3)
    rows = kernels.for_groups(p.batch(device=device), 2, CUDA)
    groups = groups_for(60, [40], -2.0)
    parameters = tuple(t[None] for t in p.parameters())
    right = kernels.accumulate_groups(*parameters, kernels.for_groups(p.batch(), 2, REFERENCE), groups)
    found = kernels.accumulate_groups(*(t.to(device) for t in parameters), rows, groups)
    torch.testing.assert_close(found.G.cpu(), right.G, rtol=1e-9, atol=1e-9)
    none = groups_for(60, [0], -2.0)
    empty = Groups(none.rows, none.starts[:1], none.background, none.weight)
    assert len(kernels.accumulate_groups(*(t[:0].to(device) for t in parameters), rows, empty).loglik) == 0


def test_a_failed_component_and_a_row_without_density_in_groups(device):
    p = problem(n=100, k=4, d=2, seed=1)
    log_weights, means, V = (t[torch.tensor([[0, 1], [2, 3]])].clone() for t in p.parameters())
    V[1, 0] = -10 * torch.eye(2)
    rows = kernels.for_groups(p.batch(device=device), 2, CUDA)
    groups = groups_for(100, [50, 50], -2.0)
    found = kernels.accumulate_groups(*(t.to(device) for t in (log_weights, means, V)), rows, groups)
    assert found.loglik[0].isfinite()
    assert found.q[0].isfinite().all()
    assert found.loglik[1].isnan()
    nothing = torch.full_like(log_weights, -torch.inf)
    bare = kernels.accumulate_groups(
        *(t.to(device) for t in (nothing, means, V.abs())), rows, groups_for(100, [50, 50], -torch.inf)
    )
    assert not bare.q[0].any()
    assert bare.loglik[0] == -torch.inf
