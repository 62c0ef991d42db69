"""What figures know of the images behind runs: from the files of the runs, or from the data itself where it is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.errors import BenchError

if TYPE_CHECKING:
    from fedrela_bench.reporting.source import StudyRuns

PARTITION = "partition.npz"


class NotDrawn(BenchError):  # noqa: N818 - a figure that is left out is no error
    """A figure has nothing to show; the text says why."""


@dataclass(frozen=True)
class TrainingData:
    """The training images that a configuration names, read by the caller of a report.

    Attributes:
        digest: of the federated dataset, as runs record it.
        names: of the C classes.
        groups: of each class, such as head.
        labels: (n,) original labels by position.
        client_counts: (K, C) images per client and class.
        images: positions (m,) to pictures (m, H, W, 1 or 3) uint8; of a table, to its rows as numbers.
        pictures: whether `images` can be looked at; rows of a table cannot.
    """

    digest: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    labels: np.ndarray
    client_counts: np.ndarray
    images: Callable[[np.ndarray], np.ndarray]
    pictures: bool = True


DataReader = Callable[[Mapping[str, Any]], TrainingData]
"""From a nested configuration to its training data; raises a `BenchError` that says why it is not here."""


@dataclass(frozen=True)
class Classes:
    """The classes of a training set.

    Attributes:
        names: C names.
        groups: C groups, such as head; empty texts where they are not known.
        counts: (C,) training images.
        client_counts: (K, C) images per client and class; None where they are not known.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    counts: np.ndarray
    client_counts: np.ndarray | None = None

    @property
    def order(self) -> np.ndarray:
        """(C,) class ids, the largest class first, equal ones by id."""
        return np.argsort(-self.counts, kind="stable")


@dataclass(frozen=True)
class Evidence:
    """The files of a study's runs, and a reader of its data where the caller has one."""

    runs: StudyRuns
    read: DataReader | None = None
    _data: dict[str, TrainingData] = field(default_factory=dict)
    _classes: dict[str, Classes | None] = field(default_factory=dict)

    def classes(self, run_id: str) -> Classes:
        """Names, groups and sizes of the classes that a run trained on.

        Taken from the run's trunk, from the data, or (sizes alone) from what the run relabelled.

        Raises:
            NotDrawn: nothing tells the sizes.
        """
        recorded = self._recorded(run_id)
        if recorded is not None:
            return recorded
        try:
            data = self.data(run_id)
        except BenchError as error:
            flow = last_flow(self.runs, run_id)
            if flow is None:
                raise NotDrawn(f"the runs do not record the sizes of the classes, and {error}") from None
            count = len(flow)
            return Classes(tuple(map(str, range(count))), ("",) * count, flow.sum(axis=1))
        return Classes(data.names, data.groups, data.client_counts.sum(axis=0), data.client_counts)

    def data(self, run_id: str) -> TrainingData:
        """The training data of a run.

        Raises:
            NotDrawn: no reader was given, the run records no configuration, or the data here is other data.
            BenchError: the reader's, where the data is not here.
        """
        digest = self._row(run_id)["data_digest"]
        if digest not in self._data:
            config = self.runs.configuration(run_id)
            if self.read is None or config is None:
                raise NotDrawn("the images are not at hand")
            self._data[digest] = self.read(config)
        found = self._data[digest]
        if digest and found.digest != digest:
            raise NotDrawn("the images found here are not those that the runs were trained on (their digests differ)")
        return found

    def _recorded(self, run_id: str) -> Classes | None:
        digest = str(self._row(run_id)["data_digest"])
        if digest not in self._classes:
            self._classes[digest] = self._search(digest)
        return self._classes[digest]

    def _search(self, digest: str) -> Classes | None:
        frame = self.runs.frame
        for trunk in frame[(frame["kind"] == "trunk") & (frame["data_digest"] == digest)]["run_id"]:
            found = self.runs.arrays(str(trunk), PARTITION)
            if found is not None:
                counts, groups = found["client_counts"], tuple(map(str, found["groups"]))
                return Classes(tuple(map(str, found["names"])), groups, counts.sum(axis=0), counts)
        return None

    def _row(self, run_id: str) -> Any:
        return self.runs.frame[self.runs.frame["run_id"] == run_id].iloc[0]


def relabelling_files(runs: StudyRuns, run_id: str) -> list[str]:
    """Names of the files of the rounds in which a run relabelled, in order."""
    names = runs.artifacts.names(run_id)
    return [name for name in names if name.startswith("relabel_r") and name.endswith(".npz")]


def last_flow(runs: StudyRuns, run_id: str) -> np.ndarray | None:
    """(C, C) training images by original class and class in force after a run's last relabelling; None without one."""
    files = relabelling_files(runs, run_id)
    arrays = runs.arrays(run_id, files[-1]) if files else None
    return None if arrays is None else np.asarray(arrays["flow"])
