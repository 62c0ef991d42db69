"""The accountant against published figures, closed forms and the exact Gaussian mechanism."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import comb
from scipy.stats import norm

from fedrela_bench.simulation.accountant import ORDERS, epsilon, sampled_gaussian


def _classic(rate: float, sigma: float, steps: int, delta: float) -> float:
    """The conversion of the first accountants: min over orders of rdp + log(1/delta) / (alpha - 1)."""
    pairs = zip(sampled_gaussian(rate, sigma), ORDERS, strict=True)
    return min(steps * rdp - math.log(delta) / (order - 1) for rdp, order in pairs)


@pytest.mark.parametrize(("sigma", "epochs", "published"), [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)])
def test_published_figures_for_mnist(sigma: float, epochs: int, published: float) -> None:
    """Batches of 256 of 60,000 digits at delta 1e-5: the table of TensorFlow Privacy's MNIST tutorial."""
    rate, steps = 256 / 60000, epochs * 60000 // 256
    assert _classic(rate, sigma, steps, 1e-5) == pytest.approx(published, abs=0.011)
    assert epsilon(rate, sigma, steps, 1e-5) < published


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.004, 0.6), (0.3, 2.0), (0.9, 1.5)])
def test_integer_orders_have_a_closed_form(rate: float, sigma: float) -> None:
    for order in (2, 5, 16, 40):
        terms = [
            math.log(comb(order, k))
            + (order - k) * math.log1p(-rate)
            + k * math.log(rate)
            + (k * k - k) / (2 * sigma**2)
            for k in range(order + 1)
        ]
        top = max(terms)
        closed = (top + math.log(sum(math.exp(term - top) for term in terms))) / (order - 1)
        found = sampled_gaussian(rate, sigma)[ORDERS.index(order)]
        assert found == pytest.approx(min(closed, order / (2 * sigma**2)), rel=1e-6, abs=1e-10)


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (2.0, 10), (5.0, 100), (20.0, 3)])
def test_without_sampling_it_bounds_the_exact_mechanism_closely(sigma: float, steps: int) -> None:
    """Balle and Wang, ICML 2018, theorem 8, for the composed mechanism of noise sigma / sqrt(steps)."""
    scale, delta = sigma / math.sqrt(steps), 1e-5

    def excess(eps: float) -> float:
        right = math.exp(eps) * norm.cdf(-eps * scale - 1 / (2 * scale))
        return float(norm.cdf(-eps * scale + 1 / (2 * scale)) - right - delta)

    exact = brentq(excess, 0.0, 500.0)
    assert exact <= epsilon(1.0, sigma, steps, delta) <= 1.15 * exact + 0.01


def test_degenerate_cases() -> None:
    assert epsilon(0.1, 1.0, 0, 1e-5) == 0
    assert epsilon(0.1, 0.0, 1, 1e-5) == math.inf
    assert sampled_gaussian(1.0, 2.0) == tuple(order / 8 for order in ORDERS)
    assert epsilon(0.01, 0.01, 1, 1e-5) > 1e3


@settings(max_examples=15, deadline=None)
@given(st.floats(0.001, 0.99), st.floats(0.4, 5), st.integers(1, 1000))
def test_more_data_steps_or_less_noise_never_guarantee_more(rate: float, sigma: float, steps: int) -> None:
    base = epsilon(rate, sigma, steps, 1e-5)
    assert base <= epsilon(min(1.0, 1.2 * rate), sigma, steps, 1e-5) * (1 + 1e-6) + 1e-9
    assert base <= epsilon(rate, sigma, 2 * steps, 1e-5) + 1e-9
    assert epsilon(rate, 1.3 * sigma, steps, 1e-5) <= base * (1 + 1e-6) + 1e-9
    assert base <= epsilon(1.0, sigma, steps, 1e-5) + 1e-9
