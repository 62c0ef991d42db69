"""What MLflow's UI shows of a study at first: the model-training pages, chosen columns, runs in their order."""

from __future__ import annotations

import json

VIEW = "fedrela-bench"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
"""Experiment tag in which MLflow keeps a saved view; the list under "Views" names it."""
KIND_TAG = "mlflow.experimentKind"
KIND = "custom_model_development"
CREATED = 1_767_225_600_000
"""Milliseconds since 1970; fixed, so that every study of an experiment writes the same view."""
COLOUR_TAG = "mlflow.runColor"
COLOURS = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#7f7f7f", "#8c564b", "#b8a600"),
    *("#5e3c99", "#66a61e", "#a6761d", "#e7298a", "#1b9e77", "#7570b3", "#666699", "#b15928", "#3182bd", "#31a354"),
)
"""Of the runs that the UI draws at first, in their order; the first eight can be told apart by colour-blind eyes."""
PARTS = ("overall", "head", "medium", "tail", "majority", "minority")
SELECTING = ("overall", "tail", "minority")
NUMBERS = (*(f"final/test/{part}" for part in PARTS), *(f"final/val/{part}" for part in SELECTING))
SETTINGS = ("relabel.tau", "relabel.start", "relabel.period")
TAGS = ("kind", "best", "status")
NAME, DATE = "attributes.`Run Name`", "runDateAndNestInfo"
LAST = ("attributes.`Models`", "attributes.`Dataset`", "duration")
WIDTHS = {NAME: 330, DATE: 130, "attributes.`Dataset`": 200}
"""Pixels; names of runs are long."""


def saved_view() -> str:
    """The value of `VIEW_TAG`, always the same; the UI leaves out columns of what a study does not measure."""
    metrics = [f"metrics.`{name}`" for name in NUMBERS]
    settings = [f"params.`{name}`" for name in SETTINGS]
    tags = [f"tags.`{name}`" for name in TAGS]
    state = {
        # Children are nested only in the order in which runs began: a study, its baselines, its trials by number.
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "selectedColumns": [*metrics, *settings, *tags, *(name for name in LAST if name != "duration")],
        "columnOrder": ["0", NAME, DATE, *metrics, *settings, *tags, *LAST],
        "columnWidths": WIDTHS,
        "runsHiddenMode": "FIRST_20_RUNS",
    }
    return json.dumps({"name": VIEW, "createdAt": CREATED, "updatedAt": CREATED, "state": json.dumps(state)})


def colour_of(index: int) -> str:
    """The colour of a study's run by its place in the study."""
    return COLOURS[index % len(COLOURS)]


def address(port: int, experiment: str) -> str:
    """Where MLflow's UI shows an experiment's runs in the saved view; its front page where `experiment` is empty."""
    host = f"http://127.0.0.1:{port}"
    if not experiment:
        return host
    return f"{host}/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
