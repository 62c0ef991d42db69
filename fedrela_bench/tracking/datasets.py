"""The dataset entry of a run: name, digest, and what a reader should know of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrela_bench.tracking.manifest import Record
from fedrela_bench.tracking.models import type_of

SOURCE_TYPE = "fedrela-bench"
CONTEXT = "training"
MOST_SIZES = 200
"""Clients up to which every one's number of images is listed."""


@dataclass(frozen=True)
class DatasetEntry:
    """What MLflow keeps of a dataset, as text."""

    name: str
    digest: str
    source: str
    schema: str
    profile: str


def dataset_of(record: Record, study: Mapping[str, Any]) -> DatasetEntry | None:
    """The entry of a run's dataset; None where its digest is not known."""
    digest = record.tags.get("data_digest", "")
    if not digest:
        return None
    facts = study.get("datasets", {}).get(digest, {})
    source = {name: value for name, value in record.config.get("data", {}).items() if value is not None}
    return DatasetEntry(
        name=str(study.get("dataset", "")),
        digest=digest,
        source=json.dumps(source, sort_keys=True),
        schema=json.dumps(_schema(facts)) if facts else "",
        profile=json.dumps(_profile(facts)) if facts else "",
    )


def _schema(facts: Mapping[str, Any]) -> dict[str, Any]:
    images = {"type": "tensor", "tensor-spec": {"dtype": str(type_of(facts)), "shape": [-1, *facts["image_shape"]]}}
    labels = {"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}
    return {"mlflow_tensorspec": {"features": json.dumps([images]), "targets": json.dumps([labels])}}


def _profile(facts: Mapping[str, Any]) -> dict[str, Any]:
    names, counts, sizes = facts["class_names"], facts["train_counts"], facts["client_sizes"]
    size = 1
    for side in facts["image_shape"]:
        size *= side
    clients = {"clients": len(sizes), "smallest client": min(sizes), "largest client": max(sizes)}
    return {
        "num_rows": sum(counts),
        "num_elements": sum(counts) * size,
        "training images per class": dict(zip(names, counts, strict=True)),
        "test images per class": dict(zip(names, facts["test_counts"], strict=True)),
        "groups": {group: [names[label] for label in labels] for group, labels in facts["groups"].items()},
        **clients,
        **({"images per client": sizes} if len(sizes) <= MOST_SIZES else {}),
    }
