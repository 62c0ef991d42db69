"""Which settings of a report are looked at, and how they are arranged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.reporting.settings import SettingSpec
from fedrela_bench.reporting.spec import SHOWN, ReportSpec, Show

LETTERS = {"α": "alpha", "τ": "tau", "ρ": "rho"}


def slug(text: str) -> str:
    """Letters, digits and underscores for file names and column keys: ``alpha_0_1`` of ``α = 0.1``."""
    spelled = "".join(LETTERS.get(letter, letter) for letter in text)
    return re.sub(r"[^A-Za-z0-9]+", "_", spelled).strip("_").lower()


@dataclass(frozen=True)
class View:
    """What a user asks of a report over settings beside its spec."""

    settings: Sequence[str] = ()
    """Names, blocks, groups or datasets; none: all."""
    show: tuple[Show, ...] | None = None
    """What every metric shows; by default the spec's."""
    stacked: bool = False
    """Settings below each other instead of side by side."""
    dataset: str | None = None
    """For settings that leave it open."""

    @property
    def plain(self) -> bool:
        """Whether nothing is asked."""
        return self == View()

    def of(self, spec: ReportSpec) -> ReportSpec:
        """The spec as it is looked at.

        Raises:
            ConfigError: a setting that the spec does not have, or anything asked of a spec without settings.
        """
        if not spec.settings:
            if not self.plain:
                raise ConfigError("this spec has no settings: leave out --setting, --show, --stacked and --dataset")
            return spec
        chosen = self._chosen(spec)
        if self.stacked:
            chosen = [setting.model_copy(update={"block": setting.title, "group": ""}) for setting in chosen]
        changes: dict[str, Any] = {"settings": tuple(chosen)}
        if len(chosen) == 1 < len(spec.settings):
            changes["title"] = f"{spec.title}: {chosen[0].title}"
        if self.show is not None:
            changes["show"] = self.show
        return spec.model_copy(update=changes)

    def _chosen(self, spec: ReportSpec) -> list[SettingSpec]:
        faults = []
        chosen = []
        for name in self.settings:
            found = [setting for setting in spec.settings if slug(name) in _names(setting)]
            chosen += found
            if not found:
                known = [setting.title for setting in spec.settings]
                faults.append(unknown_name("setting", f"--setting {name}", name, known))
        if self.dataset is not None and all(setting.dataset for setting in spec.settings):
            faults.append(f"--dataset {self.dataset}: every setting of this spec says its dataset; leave it out")
        if faults:
            raise ConfigError(faults)
        titles = {setting.title for setting in chosen} if self.settings else None
        return [setting for setting in spec.settings if titles is None or setting.title in titles]


def _names(setting: SettingSpec) -> set[str]:
    return {slug(name) for name in (setting.title, setting.block, setting.group, setting.dataset or "") if name}


def parse_show(text: str) -> tuple[Show, ...]:
    """What to show, from a comma-separated list.

    Raises:
        ConfigError: an unknown name, or none.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    faults = [unknown_name("part", f"--show {name}", name, SHOWN) for name in names if name not in SHOWN]
    if faults or not names:
        raise ConfigError(faults or [f"--show {text}: give one or several of {', '.join(SHOWN)}"])
    return tuple(show for show in get_args(Show) if show in names)
