"""Controls of the confirm stage: for every relabelled configuration one with another relabeler, seed beside seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedrela_bench.config import FEDRELA, TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.intervals import gain_text
from fedrela_bench.nested import Json
from fedrela_bench.words import counted

if TYPE_CHECKING:
    from fedrela_bench.study.results import Row

METHOD, OPTIONS = "relabel.method", "relabel.options."


@dataclass(frozen=True)
class Control:
    """A relabeler to confirm beside FedReLa."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Control:
        """Read ``NAME`` or ``NAME,OPTION=VALUE,...``, such as ``random,match=flow``.

        Raises:
            ConfigError: every fault in one message.
        """
        from fedrela_bench.relabelers import relabeler_faults
        from fedrela_bench.yaml_io import parse_scalar

        name, *rest = (part.strip() for part in text.split(","))
        pairs = [part.partition("=") for part in rest]
        faults = [f"{key or 'an option'} has no value; write {name},OPTION=VALUE" for key, sign, _ in pairs if not sign]
        options = {key.strip(): parse_scalar(value.strip()) for key, sign, value in pairs if sign}
        faults += relabeler_faults(name, options)
        faults += [f"{FEDRELA} is what the control is compared with; give random"] if name == FEDRELA else []
        if faults:
            raise ConfigError([f"--control {text}: {fault}" for fault in faults])
        return cls(name, options)

    def point(self, point: Mapping[str, Any]) -> Json:
        """A configuration with this relabeler in place of its own."""
        kept = {name: value for name, value in point.items() if not name.startswith(OPTIONS)}
        return {**kept, METHOD: self.name, **{f"{OPTIONS}{name}": value for name, value in self.options.items()}}

    @property
    def shown(self) -> str:
        """Such as ``random (same rate)``."""
        from fedrela_bench.relabelers import build_relabeler

        return build_relabeler(self.name, self.options).shown


def relabeler_text(config: TrialConfig) -> str:
    """The relabeler of a configuration as reports name it, such as ``random (same rate)``; nothing for FedReLa."""
    from fedrela_bench.relabelers import build_relabeler

    relabel = config.relabel
    return "" if relabel.method == FEDRELA else build_relabeler(relabel.method, relabel.options).shown


def is_control(config: TrialConfig) -> bool:
    """Whether a configuration's relabeler is there to be compared with, not to be chosen."""
    from fedrela_bench import relabelers

    return config.relabel.method != FEDRELA and relabelers.is_control(config.relabel.method)


def candidates(rows: Sequence[Row], bases: Mapping[str, TrialConfig]) -> list[Row]:
    """The rows that may be recommended: those whose relabeler is no control, or all where every one is."""
    from fedrela_bench import relabelers

    def chosen(row: Row) -> bool:
        base = bases[row.algorithm].relabel.method if row.algorithm in bases else FEDRELA
        return not relabelers.is_control(str(row.point.get(METHOD, base)))

    return [row for row in rows if chosen(row)] or list(rows)


def difference_lines(rows: Iterable[Row], objectives: Sequence[str]) -> Iterator[str]:
    """What each configuration has over its control, mean over pairs of equal seed with its interval.

    Args:
        rows: of the confirm stage.
        objectives: metrics to tell first; the reported ones of the same groups follow.
    """
    names = dict.fromkeys([*objectives, *(f"test/{name.split('/')[-1]}" for name in objectives)])
    for row in rows:
        gains = {name: row.against[name] for name in names if name in row.against}
        told = [f"{name} {gain_text(gain.value, gain.low, gain.high)}" for name, gain in gains.items()]
        if told:
            n = next(iter(gains.values())).n
            yield f"{row.partner} - {row.relabeler}: {', '.join(told)} (paired over {counted(n, 'seed')})"


def difference_table(rows: Iterable[Row]) -> list[list[Any]]:
    """``controls.csv``: header, then a line for each pair and metric; differences as fractions."""
    header = ["algorithm", "configuration", "control", "metric", "difference", "n"]
    header += ["low", "high", "boot_low", "boot_high"]
    lines = [
        [row.algorithm, row.partner, row.label, name, gain.value, gain.n]
        + ["" if bound is None else bound for bound in (gain.low, gain.high, gain.boot_low, gain.boot_high)]
        for row in rows
        for name, gain in sorted(row.against.items())
    ]
    return [header, *lines]
