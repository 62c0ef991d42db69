"""A wrong network of one's own is refused before anything is trained, with its layer and the remedy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrela_bench import models
from fedrela_bench.cli import main
from fedrela_bench.config import parse
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import Backbone, model_names, prove_model, register_model
from fedrela_bench.simulation.setup import build_network
from fedrela_bench.testing import check_model, toys
from tests.plugins.texts import NET, write

SHAPE = (1, 8, 8)
DRAWS = "draws random numbers in training"


@pytest.fixture(autouse=True)
def only_for_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_BUILDERS", dict(models._BUILDERS))


def sound(net: Own, images: Tensor) -> Tensor:
    return net.linear(net.conv(images).flatten(1))  # type: ignore[no-any-return]


class Own(Backbone):
    """A convolution and a linear layer of 16; the forward pass is given."""

    def __init__(self, forward: Callable[[Own, Tensor], object], feature_dim: int, last: nn.Module) -> None:
        super().__init__(feature_dim)
        self.conv, self.linear, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(256, 16), last
        self._forward = forward

    def forward(self, images: Tensor) -> object:
        """As it was given."""
        return self._forward(self, images)


def own(
    forward: Callable[[Own, Tensor], object] = sound, feature_dim: int = 16, last: Callable[[], nn.Module] = nn.Identity
) -> str:
    """The name of a new model."""
    name = f"passes_{len(model_names())}"
    register_model(name)(lambda shape, norm: Own(forward, feature_dim, last()))
    return name


def refusal(*given: object) -> str:
    name = own(*given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        prove_model(name, SHAPE)
    assert f"model {name} for inputs of 1x8x8" in str(caught.value)
    return str(caught.value)


def through_last(net: Own, images: Tensor) -> Tensor:
    return net.last(sound(net, images))  # type: ignore[no-any-return]


def test_sound_ones_pass_whatever_their_forward_does() -> None:
    for forward in (
        sound,
        lambda net, images: sound(net, images / float(images.abs().max())),
        lambda net, images: sound(net, images) + torch.ones(16),
        lambda net, images: sound(net, torch.from_numpy(images.numpy())),
    ):
        prove_model(own(forward), SHAPE)
    prove_model(own(through_last, 16, lambda: nn.Dropout(0.0)), SHAPE)


def test_a_wrong_width_says_which_is_right() -> None:
    told = refusal(sound, 32)
    assert "gives 16 features, not (B, 32) features (its last layer is linear)" in told
    assert "pass feature_dim=16 to Backbone.__init__" in told
    assert "feature_dim is 0; give the number of features" in refusal(sound, 0)


def test_what_is_no_row_for_each_image_names_the_layer() -> None:
    told = refusal(lambda net, images: net.conv(images))
    assert (
        "gives shape (2, 4, 8, 8), not (B, 16) features (its last layer is conv); pool and flatten at the end" in told
    )
    told = refusal(lambda net, images: sound(net, images).squeeze())
    assert "eval mode, batch of 1, torch.float32: gives shape (16,)" in told
    assert "gives a tuple, not (B, 16)" in refusal(lambda net, images: (sound(net, images), images))


def test_a_forward_pass_that_fails_names_the_layer() -> None:
    told = refusal(lambda net, images: net.linear(images.flatten(1)))
    assert "forward fails in layer linear (RuntimeError: mat1 and mat2 shapes cannot be multiplied" in told
    assert "make its layers fit such inputs" in told


def test_features_have_the_runs_dtype() -> None:
    assert "gives torch.int64 values, not (B, 16) features (its last layer is linear)" in refusal(
        lambda net, images: sound(net, images).long()
    )
    name = own(lambda net, images: sound(net, images).float())
    prove_model(name, SHAPE, dtype=torch.float32)
    with pytest.raises(ConfigError, match=r"torch.float64: gives torch.float32 values"):
        prove_model(name, SHAPE, dtype=torch.float64)


def test_random_numbers_are_refused_and_dropout_named() -> None:
    assert f"{DRAWS} (layer last), so that a run could not be repeated; make it without dropout" in refusal(
        through_last, 16, lambda: nn.Dropout(0.5)
    )
    functional = refusal(lambda net, images: F.dropout(sound(net, images), 0.5, net.training))
    assert f"{DRAWS} (its forward pass)" in functional
    assert DRAWS in refusal(lambda net, images: sound(net, images) * random.random())


def test_all_faults_are_told_at_once() -> None:
    told = refusal(through_last, 32, lambda: nn.Sequential(nn.Dropout(0.5), nn.Embedding(2, 2), nn.Identity()))
    assert "nothing initialises last.1 (Embedding)" in told
    told = refusal(lambda net, images: net.last(net.conv(images)).long(), 32, lambda: nn.Dropout(0.5))
    assert "2 faults" in told and "(2, 4, 8, 8)" in told and DRAWS in told


def test_nothing_is_drawn_and_a_new_network_of_the_name_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    name, before = own(), torch.get_rng_state()
    prove_model(name, SHAPE)
    assert "draws" in refusal(through_last, 16, lambda: nn.Dropout(0.5))
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setitem(models._BUILDERS, name, lambda shape, norm: Own(sound, 32, nn.Identity()))
    with pytest.raises(ConfigError, match=r"gives 16 features, not \(B, 32\)"):
        prove_model(name, SHAPE)


def test_searches_and_simulations_look_before_they_start() -> None:
    trial = parse({"training": {"model": own(sound, 32)}, "federation": {"clients": 3}})
    with pytest.raises(ConfigError, match=r"gives 16 features, not \(B, 32\)"):
        build_network(trial, toys.skewed())


def test_the_kit_says_the_same() -> None:
    with pytest.raises(AssertionError) as caught:
        check_model(own(through_last, 16, lambda: nn.Dropout(0.5)), SHAPE)
    assert "breaks the rule 'random'" in str(caught.value)
    assert f"{DRAWS} (layer last)" in str(caught.value)


def test_run_ends_with_code_2_and_the_plugins_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "net.py", NET.replace("images.flatten(1)", "images.flatten()"))
    words = ["run", "--dataset", "digits_lt", "--plugin", path, "--training.model", "tiny", "--federation.rounds", "1"]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "model tiny for inputs of 1x8x8, train mode, batch of 2, torch.float32: forward fails in layer linear" in err
    assert "in net.py, line 18, in forward: return torch.relu(self.linear(images.flatten()))" in err
