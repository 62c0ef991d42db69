"""A run's scored model in MLflow's ``python_function`` flavour, for `mlflow.pyfunc.load_model` and `mlflow models`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedrela_bench import __version__
from fedrela_bench.tracking.manifest import Record

FILE = "model.bin"
"""In the folder of a finished run."""
LOADER = "fedrela_bench.simulation.served"
TAKES = (
    "It takes raw images, `(n, H, W, C)` uint8, and normalises them (of a table: standardised rows), and gives class "
    'ids by the score that is reported (`params={"output": "logits"}` the scores).'
)
REQUIRED = ("torch", "numpy", "pydantic", "mlflow")


def model_file(folder: Path) -> Path | None:
    """The model that a finished run left, if it is kept."""
    path = folder / FILE
    return path if path.is_file() else None


def requirements() -> list[str]:
    """What serves the model, pinned to what is installed; a build's local label is not part of a release's name."""
    pinned = {name: version(name).partition("+")[0] for name in REQUIRED}
    return [f"fedrela-bench=={__version__}", *(f"{name}=={number}" for name, number in pinned.items())]


def example_of(facts: Mapping[str, Any]) -> np.ndarray:
    """(1, H, W, C): the first test image, or a black one where it is too large to be kept; of a table a row."""
    shape, kind = tuple(facts["image_shape"]), type_of(facts)
    pixels = facts.get("example")
    if not pixels:
        return np.zeros((1, *shape), dtype=kind)
    return np.frombuffer(base64.b64decode(pixels), dtype=kind).reshape(1, *shape)


def type_of(facts: Mapping[str, Any]) -> np.dtype[Any]:
    """uint8 for images, float32 for the standardised rows of a table."""
    return np.dtype(str(facts.get("image_type", "uint8")))


def write_model(source: Path, target: Path, facts: Mapping[str, Any], record: Record, ids: Mapping[str, str]) -> None:
    """Write a folder that MLflow loads.

    Args:
        source: the run's model file.
        target: folder to make.
        facts: of the dataset: image shape, class names, an example.
        record: of the run.
        ids: MLflow's ``run_id`` and ``model_id``.
    """
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    images = TensorSpec(type_of(facts), (-1, *facts["image_shape"]))
    labels = TensorSpec(np.dtype(np.int64), (-1,))
    output = ParamSpec("output", DataType.string, "label")
    pyfunc.save_model(
        str(target),
        loader_module=LOADER,
        data_path=str(source),
        mlflow_model=Model(run_id=ids["run_id"], model_uuid=ids["model_id"], model_id=ids["model_id"]),
        signature=ModelSignature(Schema([images]), Schema([labels]), ParamSchema([output])),
        input_example=example_of(facts),
        pip_requirements=requirements(),
        metadata={"class_names": list(facts["class_names"]), "key": record.key, "algorithm": record.algorithm},
    )


def model_note(record: Record) -> str:
    """What a logged model is, in Markdown."""
    return (
        f"The global model of a run of {record.algorithm}, seed {record.seed}, after its last round (one of the five "
        "that its numbers are means of). " + TAKES
    )


def serving_lines(models: Mapping[str, str]) -> list[str]:
    """Markdown about logged models: how to load and serve them.

    Args:
        models: name of the choice, such as overall, to the model's URI.
    """
    if not models:
        return []
    some = next(iter(models.values()))
    return [
        "### Models",
        "",
        *(f"- {name}: `{uri}`" for name, uri in models.items()),
        "",
        f"{TAKES} With `fedrela-bench` installed:",
        "",
        f"- `mlflow.pyfunc.load_model('{some}').predict(images)`",
        f"- `mlflow models serve -m {some} --env-manager local --port 5001`",
    ]
