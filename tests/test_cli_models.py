"""`models list` and `models check`: sizes that are true, and a broken rule seen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedrela_bench.cli import main
from tests.plugins.texts import NET, write

Capture = pytest.CaptureFixture[str]


def call(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    got = main(["models", *words])
    out, err = capsys.readouterr()
    assert got == code, err
    return out, err


def test_sizes_are_those_of_the_papers_networks(capsys: Capture) -> None:
    listed = json.loads(call(capsys, "list", "--input", "1x28x28", "--json")[0])
    rows = {row["name"]: row for row in listed["models"]}
    # The size that docs/benchmarks.md gives, without its head.
    assert rows["fmcnn"]["parameters"] == 582_026 - (512 * 10 + 10)
    assert (rows["fmcnn"]["features"], rows["resnet50"]["features"]) == (512, 2048)
    # LeNet-5 by hand: convolutions, then 16 * 4 * 4 -> 120 -> 84.
    assert rows["lenet"]["parameters"] == (25 * 6 + 6) + (150 * 16 + 16) + (256 * 120 + 120) + (120 * 84 + 84)


def test_a_model_that_does_not_fit_says_why(capsys: Capture) -> None:
    out, _ = call(capsys, "list", "--input", "1X8x8")
    # Models of other tests may widen the column of names.
    assert re.search(r"lenet +model lenet needs images of at least 16x16 pixels", " ".join(out.split()))
    assert re.search(r"digits +37,632 parameters, 64 features", out)
    row = json.loads(call(capsys, "list", "--input", "1x8x8", "--json")[0])["models"][1]
    assert (row["name"], row["parameters"], "16x16" in row["why_not"]) == ("lenet", None, True)


def test_ones_own_is_listed_and_checked(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "net.py", NET)
    assert "from plugin" in call(capsys, "list", "--plugin", path)[0]
    assert "all 7 rules hold" in call(capsys, "check", "tiny", "--plugin", path, "--input", "1x8x8")[0]
    assert "tiny" not in call(capsys, "list")[0]


DEAD = """
import torch
from fedrela_bench.models import Backbone, register_model

@register_model("unused_layer")
class Unused(Backbone):
    def __init__(self, input_shape, norm):
        super().__init__(feature_dim=4)
        self.used = torch.nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], 4)
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, images):
        return self.used(images.flatten(1))
"""


def test_a_broken_rule_ends_with_code_1(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, "unused.py", DEAD)
    out, err = call(capsys, "check", "unused_layer", "--plugin", path, "--input", "1x4x4", "--json", code=1)
    rows = json.loads(out)["checks"]
    assert [row["rule"] for row in rows if not row["holds"]] == ["gradients"]
    assert "unused" in err and "1 of 7 rules broken" in err


@pytest.mark.parametrize("size", ["3x32", "0x8x8", "a", "1x28x99999", "1x-2x3"])
def test_wrong_words_are_told_at_once(size: str, capsys: Capture) -> None:
    _, err = call(capsys, "check", "lenett", "--input", size, code=2)
    assert f"--input {size}: give channels x height x width" in err
    assert "unknown model lenett; did you mean lenet? (one of your own: --plugin FILE)" in err
