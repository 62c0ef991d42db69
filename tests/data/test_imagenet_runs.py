"""ImageNet-LT through the command line: fetched, shown, run and searched on a small tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrela_bench.cli import main
from tests.data.trees import write_tree

SMALL = [
    "--data.image_size",
    "16",
    "--training.model",
    "digits",
    "--federation.rounds",
    "3",
    "--training.local_epochs",
    "1",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("made"))


def test_get_show_and_run(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--data-dir", str(tree), "--data.image_size", "16"]
    assert main(["data", "get", "imagenet_lt", *place, "--workers", "1"]) == 0
    text = capsys.readouterr()
    assert "imagenet_lt: ready, from" in text.out
    assert "161 of 161 images" in text.err and "nothing is thinned" in text.err
    assert main(["data", "show", "--dataset", "imagenet_lt", *place, "--out", str(tmp_path / "map.png")]) == 0
    text = capsys.readouterr()
    assert (
        "nothing is thinned" in text.out and "113 training images of 16x16x3 in 12 classes (30 to 1 each)" in text.out
    )
    groups = text.out.partition("usual for ImageNet-LT")[2]
    assert (
        "many         0 classes" in groups and "medium       2 classes" in groups and "few         10 classes" in groups
    )
    assert "decoding" not in text.err
    out = tmp_path / "run"
    words = [
        "run",
        "--dataset",
        "imagenet_lt",
        "--data-dir",
        str(tree),
        *SMALL,
        "--relabel.tau",
        "0.1",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    result = json.loads((out / "result.json").read_text())
    assert any("nothing is thinned" in note for note in result["data_notes"])


@pytest.mark.cluster
def test_a_search(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    words = ["tune", "--dataset", "imagenet_lt", "--data-dir", str(tree), *SMALL, "--trials", "1", "--seeds", "1"]
    assert main([*words, "--out", str(out)]) == 0, capsys.readouterr().err
    assert main(["report", str(out)]) == 0
    assert "nothing is thinned" in capsys.readouterr().out


def test_without_the_data_the_message_says_what_to_put_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "get", "imagenet_lt", "--data-dir", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert "ImageNet_LT_train.txt" in text and "cannot be downloaded" in text and "none of the lists" in text
    assert main(["data", "show", "--dataset", "imagenet_step"]) == 2
    assert "data.profile = step" in capsys.readouterr().err
