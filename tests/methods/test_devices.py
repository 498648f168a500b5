"""Methods on a GPU, without one: every update stays on the device of its state."""

import numpy as np
import pytest
import torch

import xdeconv as xd
from elsewhere import GPU, Elsewhere, Machine
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.kernels.stats import Stats
from xdeconv.methods import Averaged
from xdeconv.methods.accelerated import Accelerated

START = xd.Mixture([0.4, 0.6], [[-1.0, 0.0], [1.0, 0.5]], [np.eye(2), 2 * np.eye(2)])
PRIOR = xd.Prior(w=0.01)
METHODS = {
    "em": xd.EM(),
    "em with a prior": xd.EM(prior=PRIOR),
    "minibatch em": xd.EM(step=0.5, inflate=1e-3),
    "sgd": xd.SGD(),
    "averages of minibatch em": Averaged(xd.EM(step=0.5)),
    "averages of sgd": Averaged(xd.SGD()),
    "sgd with a prior": xd.SGD(prior=PRIOR, trace_penalty=0.1),
    "held means": xd.EM(fixed=xd.Fixed(means=[True, False])),
    "accelerated": Accelerated(xd.EM()),
    "accelerated with a prior": Accelerated(xd.EM(prior=PRIOR)),
    "accelerated with weights held": Accelerated(xd.EM(fixed=xd.Fixed(weights=True))),
    **{
        f"accelerated, {kind}": Accelerated(xd.EM(covariance=kind))
        for kind in ("tied", "diagonal", "spherical", "low-rank:1")
    },
}


def rows():
    rng = np.random.default_rng(0)
    error = rng.uniform(0.3, 2.0, size=(300, 2))
    return xd.Batch.from_arrays(START.sample(300, seed=1, error=error), error=error)


def test_the_pretence_refuses_tensors_of_two_devices():
    with Machine():
        there = torch.ones(3, device=GPU)
        assert isinstance(there, Elsewhere)
        assert float((there + 1).sum()) == 6.0
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)


@pytest.mark.parametrize("name", METHODS)
def test_updates_stay_on_the_device(name):
    method, batch = METHODS[name], rows()
    ends = []
    for device in ("cpu", GPU):
        with Machine():
            state = method.init(START, device)
            for _ in range(12):
                theta = [t.cpu() for t in state.parameters()]
                sums = kernels.accumulate(*theta, batch, Options())
                state = method.update(state, Stats(sums.packed.to(device), 2, 2), float(batch.n))
            ends.append(method.mixture(state))
    close = 1e-5 if "sgd" in name else 1e-9  # whose rate is a float32 on a device
    np.testing.assert_allclose(ends[1].means, ends[0].means, rtol=close, atol=close)
    np.testing.assert_allclose(ends[1].covariances, ends[0].covariances, rtol=close, atol=close)
