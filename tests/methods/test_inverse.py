"""Compiled inverses and determinants are those that torch finds, and NaN tells of what has none."""

import pytest
import torch

from xdeconv.methods.inverse import inverse_and_log_det


@pytest.mark.parametrize("d", [1, 2, 3, 7, 20, 61])
def test_inverses_are_those_of_torch(d):
    torch.manual_seed(d)
    A = torch.randn(2, 3, d, d, dtype=torch.float64)
    V = A @ A.mT + 0.1 * torch.eye(d, dtype=torch.float64)
    inverse, log_det = inverse_and_log_det(V)
    torch.testing.assert_close(inverse, torch.linalg.inv(V), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(V).logabsdet)
    assert torch.equal(inverse, inverse.mT)
    by_torch = inverse_and_log_det(V.requires_grad_())  # through which autograd goes
    torch.testing.assert_close(by_torch[0].detach(), inverse, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(by_torch[1].detach(), log_det)


@pytest.mark.parametrize("fault", ["indefinite", "singular", "missing"])
def test_what_is_not_positive_definite_has_none(fault):
    V = torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    V[1] = {"indefinite": -V[0], "singular": torch.ones(3, 3), "missing": torch.full((3, 3), torch.nan)}[fault]
    inverse, log_det = inverse_and_log_det(V)
    assert torch.equal(inverse[0], V[0])
    assert log_det[0] == 0
    assert inverse[1].isnan().all()
    assert log_det[1].isnan()
