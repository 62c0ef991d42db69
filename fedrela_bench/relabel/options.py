"""Every choice that FedReLa's paper leaves open or its released code makes differently."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields
from typing import Literal, Self, get_args

from fedrela_bench.errors import ConfigError

Pick = Literal["all", "drawn"]
Quantile = Literal["linear", "order"]
Pool = Literal["all", "exclude_own"]
Absent = Literal["allow", "forbid"]
Score = Literal["zscore", "none", "minmax"]

CHOICES: dict[str, tuple[object, ...]] = {
    "pick": get_args(Pick),
    "std_ddof": (1, 0),
    "quantile": get_args(Quantile),
    "threshold_pool": get_args(Pool),
    "absent_targets": get_args(Absent),
    "score": get_args(Score),
}


@dataclass(frozen=True)
class RelabelOptions:
    """How labels are re-allocated; the defaults read the paper literally.

    Args:
        pick: a sample for which any class is drawn takes the class of largest rho among all classes (Algorithm 1),
            or among the drawn classes only (released code).
        std_ddof: 1 divides by N - 1 as in eq. (4), 0 by N.
        sigma_floor: smallest standard deviation that z-scores are divided by; 0: none, and z = 0 where it is zero.
        quantile: ``linear`` interpolates between order statistics in eq. (7); ``order`` takes the one that leaves
            int(tau * n) values above.
        threshold_pool: samples that the threshold of a class is taken over: all, or those of other classes.
        absent_targets: whether classes without local samples may receive any.
        score: ``zscore`` is eq. (5); ``none`` (rho = posterior * prior weight, no threshold) and ``minmax`` (scores
            scaled to [0, 1] inside each class, rho linear above the threshold) are the paper's ablations.
        constant_threshold: one threshold for all classes in place of eq. (7).

    Raises:
        ConfigError: every wrong option in one message.
    """

    pick: Pick = "all"
    std_ddof: Literal[0, 1] = 1
    sigma_floor: float = 0.0
    quantile: Quantile = "linear"
    threshold_pool: Pool = "all"
    absent_targets: Absent = "allow"
    score: Score = "zscore"
    constant_threshold: float | None = None

    def __post_init__(self) -> None:
        faults = [
            fault for name, valid in CHOICES.items() if (fault := _choice_fault(name, getattr(self, name), valid))
        ]
        if not _is_real(self.sigma_floor) or self.sigma_floor < 0:
            faults.append(f"sigma_floor = {self.sigma_floor!r} must be a finite number of at least 0")
        if self.constant_threshold is not None and not _is_real(self.constant_threshold):
            faults.append(
                f"constant_threshold = {self.constant_threshold!r} must be a finite number, or None for eq. (7)"
            )
        elif self.constant_threshold is not None and self.score == "none":
            faults.append(
                "constant_threshold has no effect with score = 'none', which uses no threshold; leave one out"
            )
        if faults:
            raise ConfigError(faults)

    @classmethod
    def preset(cls, name: str) -> Self:
        """The options of ``paper`` (the defaults) or ``author`` (the released code).

        Raises:
            ConfigError: unknown preset.
        """
        if name == "paper":
            return cls()
        if name == "author":
            return cls(pick="drawn", std_ddof=0, sigma_floor=1e-6, quantile="order")
        raise ConfigError(f"unknown preset {name!r}; valid: paper, author")

    @classmethod
    def of(cls, section: object) -> Self:
        """The options held by the equally named attributes of another object, such as ``TrialConfig.relabel``."""
        return cls(**{field.name: getattr(section, field.name) for field in fields(cls)})


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice_fault(name: str, value: object, valid: tuple[object, ...]) -> str | None:
    if not isinstance(value, bool) and value in valid:
        return None
    near = difflib.get_close_matches(str(value), [str(choice) for choice in valid], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"valid: {', '.join(str(choice) for choice in valid)}"
    return f"{name} = {value!r} is not a choice; {hint}"
