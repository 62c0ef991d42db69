"""What a Gaussian mechanism guarantees after many steps: Renyi differential privacy and its conversion.

Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism", 2019 (arXiv 1908.10530):
section 3.3, the divergence at order alpha of N(0, s^2) mixed with N(1, s^2) at rate q from N(0, s^2). Canonne, Kamath
and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, proposition 12: the conversion to (eps,
delta).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

ORDERS = (*(1 + step / 10 for step in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512)
"""Orders alpha that the best bound is taken over."""
SMALLEST_SIGMA = 0.2
"""Below, sampling is not counted: the bound without it holds, and is useless as well."""
REACH = 12.0
"""Standard deviations beyond which an integrand is nothing."""


@lru_cache(maxsize=4096)
def sampled_gaussian(rate: float, sigma: float) -> tuple[float, ...]:
    """RDP of one step at each of `ORDERS`.

    A step adds Gaussian noise of standard deviation sigma * C to a sum over samples, each of norm at most C and each in
    the sum with probability `rate`, independently (Poisson sampling); neighbours differ in one sample, there or not.

    Args:
        rate: q, above 0 and at most 1.
        sigma: noise multiplier, above 0.
    """
    plain = [order / (2 * sigma**2) for order in ORDERS]
    if rate >= 1 or sigma < SMALLEST_SIGMA:
        return tuple(plain)
    return tuple(min(full, _divergence(rate, sigma, order)) for full, order in zip(plain, ORDERS, strict=True))


def _divergence(rate: float, sigma: float, order: float) -> float:
    """Log E[((1 - q) + q exp((2 z - 1) / (2 s^2)))^alpha] / (alpha - 1) over z of N(0, s^2).

    The trapezoid rule converges geometrically: the integrand is analytic within pi s^2 of the real line.
    """
    step = min(sigma, sigma**2) / 4
    points = np.arange(-REACH * sigma, order + REACH * sigma, step)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * points - 1) / (2 * sigma**2))
    exponent = order * ratio - points**2 / (2 * sigma**2)
    top = float(exponent.max())
    total = top + math.log(float(np.exp(exponent - top).sum()) * step / (sigma * math.sqrt(2 * math.pi)))
    return max(total / (order - 1), 0.0)


def epsilon(rate: float, sigma: float, steps: int, delta: float) -> float:
    """The least eps for which `steps` steps are (eps, delta)-differentially private by this bound.

    Args:
        rate: q of `sampled_gaussian`.
        sigma: noise multiplier; 0 gives infinity.
        steps: how many, 0 for a client that never took part: eps 0.
        delta: above 0 and below 1.
    """
    if steps == 0:
        return 0.0
    if sigma <= 0:
        return math.inf
    bounds = [
        steps * rdp + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for rdp, order in zip(sampled_gaussian(rate, sigma), ORDERS, strict=True)
    ]
    return float(max(0.0, min(bounds)))
