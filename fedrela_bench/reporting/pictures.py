"""The figures that a report spec can name: which numbers each takes, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedrela_bench.errors import BenchError
from fedrela_bench.reporting.build import groups_of, table_arms
from fedrela_bench.reporting.classes import class_gains, classes_title, draw_classes
from fedrela_bench.reporting.curves import curves, curves_title, draw_curves
from fedrela_bench.reporting.evidence import DataReader, Evidence, NotDrawn
from fedrela_bench.reporting.figures import client_map, client_title, draw_client_map
from fedrela_bench.reporting.flow import draw_flow, flow_between, flow_title
from fedrela_bench.reporting.gallery import draw_gallery, gallery, gallery_title, relabelled_log
from fedrela_bench.reporting.importance import draw_importance, importance, importance_title
from fedrela_bench.reporting.pairs import pairs
from fedrela_bench.reporting.parallel import draw_parallel, parallel, parallel_title
from fedrela_bench.reporting.plane import chosen, draw_pareto, pareto_points, plane_texts
from fedrela_bench.reporting.published import load_published
from fedrela_bench.reporting.sensitivity import TAU, draw_sensitivity, sensitivity, sensitivity_title
from fedrela_bench.reporting.spec import METRICS, Figure, reports_folder
from fedrela_bench.reporting.trials import START

if TYPE_CHECKING:
    from fedrela_bench.reporting.arms import Arm
    from fedrela_bench.reporting.pairs import Pair
    from fedrela_bench.reporting.published import Published
    from fedrela_bench.reporting.source import StudyRuns
    from fedrela_bench.reporting.spec import ReportSpec

PUBLISHED = "fedrela.csv"


class Picture(NamedTuple):
    """One file of a figure: the end of its name, its caption, and what draws it."""

    name: str
    caption: str
    draw: Callable[[Path], None]


@dataclass(frozen=True)
class Drawn:
    """Files with their captions, and a line for every figure that is not there."""

    files: dict[Path, str]
    left_out: tuple[str, ...]
    failed: tuple[str, ...] = ()
    """Those of `left_out` that should be there, but drawing them failed."""


@dataclass(frozen=True)
class Context:
    """What figures are made from: a study, a spec, and a reader of the data where there is one."""

    runs: StudyRuns
    spec: ReportSpec
    evidence: Evidence
    reference: Published | None = None

    @cached_property
    def arms(self) -> list[Arm]:
        """The rows of the spec that have runs."""
        return table_arms(self.runs, self.spec)

    @cached_property
    def pairs(self) -> list[Pair]:
        """A relabelled arm of each algorithm."""
        return pairs(self.runs, self.arms, self.spec.round_rule)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Accuracies of the spec, or all of the dataset's profile."""
        return tuple(name for name in self.spec.metrics or () if name in METRICS) or groups_of(self.runs)

    @cached_property
    def published(self) -> Published:
        """The spec's published numbers, or the shipped ones."""
        return self.reference or load_published(reports_folder() / "published" / PUBLISHED)


def draw_figures(
    runs: StudyRuns,
    spec: ReportSpec,
    folder: Path,
    stem: str,
    published: Published | None = None,
    read: DataReader | None = None,
) -> Drawn:
    """Draw the figures of a spec as ``<folder>/<stem>_<what>.png``, in its order; equal studies give equal bytes.

    A figure that fails, for whatever reason, costs neither the others nor the tables.

    Args:
        runs: the study.
        spec: its `figures`, and what they show.
        folder: where to write.
        stem: the start of the names.
        published: the spec's published numbers; by default the shipped ones.
        read: reads the training data of a recorded configuration, for figures that need images.
    """
    context = Context(runs, spec, Evidence(runs, read), published)
    files: dict[Path, str] = {}
    left_out: list[str] = []
    failed: list[str] = []
    for name in dict.fromkeys(spec.figures):
        try:
            for picture in FIGURES[name](context):
                path = folder / f"{stem}_{picture.name}.png"
                picture.draw(path)
                files[path] = picture.caption
        except BenchError as error:
            left_out.append(f"figure {name} is left out: {error}")
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
            failed.append(f"figure {name} is left out: it could not be drawn ({why})")
            left_out.append(failed[-1])
    return Drawn(files, tuple(left_out), tuple(failed))


def _curves(context: Context) -> Iterator[Picture]:
    """Without metrics in the spec: overall, and tail or minority."""
    runs, spec = context.runs, context.spec
    groups = groups_of(runs)
    drawn = False
    for metric in spec.metrics or (groups[0], groups[-1]):
        name = f"{spec.split}/{metric}"
        found = curves(runs, context.arms, name)
        if found:
            title = curves_title(runs, context.arms, found, name)
            yield Picture(metric, f"{metric} accuracy per round", partial(draw_curves, found, name, title))
            drawn = True
    if not drawn:
        raise NotDrawn("no accuracy was measured by round")


def _pareto(context: Context) -> Iterator[Picture]:
    runs = context.runs
    if len(runs.objectives) < 2:
        raise NotDrawn("the study has a single objective")
    points = pareto_points(runs, context.spec.round_rule)
    if not points:
        raise NotDrawn("no configuration was measured on the images that select")
    texts = plane_texts(runs, points, context.spec.round_rule)
    draw = partial(draw_pareto, points, chosen(points, runs.objectives), texts)
    yield Picture("pareto", "the search: Pareto front per algorithm", draw)


def _sensitivity(parameter: str, name: str, words: str, context: Context) -> Iterator[Picture]:
    runs, spec = context.runs, context.spec
    found = sensitivity(runs, spec, parameter, context.metrics, context.published)
    draw = partial(draw_sensitivity, found, sensitivity_title(runs, spec, found), spec.split)
    yield Picture(name, f"sensitivity to {words}", draw)


def _classes(context: Context) -> Iterator[Picture]:
    runs, spec = context.runs, context.spec
    found = [
        class_gains(runs, pair, context.evidence.classes(pair.runs[pair.seeds[0]][1]), spec.split, spec.round_rule)
        for pair in context.pairs
    ]
    draw = partial(draw_classes, found, classes_title(runs, spec, found), spec.split)
    yield Picture("classes", "accuracy of every class, by class size", draw)


def _flow(context: Context) -> Iterator[Picture]:
    runs = context.runs
    found = [flow_between(runs, pair, context.evidence.classes(pair.runs[pair.seeds[0]][1])) for pair in context.pairs]
    yield Picture("flow", "where relabelled images went", partial(draw_flow, found, flow_title(runs, found)))


def _gallery(context: Context) -> Iterator[Picture]:
    pair = context.pairs[0]
    seed = pair.seeds[0]
    log = relabelled_log(context.runs, pair.runs[seed][1])
    data = context.evidence.data(pair.runs[seed][1])
    if not data.pictures:
        raise NotDrawn("the data are rows of a table, and there is nothing to look at")
    found = gallery(log, data.labels, data.images)
    draw = partial(draw_gallery, found, data, gallery_title(context.runs, pair, seed, found))
    yield Picture("gallery", "relabelled images beside the nearest of their new class", draw)


def _clients(context: Context) -> Iterator[Picture]:
    row = context.runs.frame.sort_values("seed", kind="stable").iloc[0]
    classes = context.evidence.classes(str(row["run_id"]))
    if classes.client_counts is None:
        raise NotDrawn("the runs do not record who holds which images, and the images are not at hand")
    found = client_map(classes.client_counts, classes.names)
    draw = partial(draw_client_map, found, client_title(context.runs, int(row["seed"]), found))
    yield Picture("clients", "training images per client and class", draw)


def _importance(context: Context) -> Iterator[Picture]:
    found = importance(context.runs, context.spec)
    draw = partial(draw_importance, found, importance_title(context.runs, context.spec, found))
    yield Picture("importance", "which settings decide the gain", draw)


def _parallel(context: Context) -> Iterator[Picture]:
    found = parallel(context.runs, context.spec)
    draw = partial(draw_parallel, found, parallel_title(context.runs, context.spec, found))
    yield Picture("parallel", "settings and results of all configurations", draw)


FIGURES: dict[Figure, Callable[[Context], Iterator[Picture]]] = {
    "curves": _curves,
    "pareto": _pareto,
    "tau": partial(_sensitivity, TAU, "tau", "τ"),
    "start": partial(_sensitivity, START, "start", "the round of the first relabelling"),
    "classes": _classes,
    "flow": _flow,
    "gallery": _gallery,
    "clients": _clients,
    "importance": _importance,
    "parallel": _parallel,
}
"""Figure name to its pictures; a `BenchError` says why there are none."""
