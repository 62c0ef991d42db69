"""torchvision's, timm-style and other modules as models: their heads, first values, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn

from fedrela_bench.config import parse
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.models import Net, from_module, materialize, register_module
from fedrela_bench.rng import generator
from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import check_model
from tests.simulation import toy

GREY = (1, 8, 8)


class Plain(nn.Module):
    """A classifier as people write them."""

    def __init__(self, classes: int = 1000, **parts: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6, classes)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        features = self.conv(x).mean(dim=(2, 3))
        for name, part in self.named_children():
            if name not in ("conv", "fc"):
                features = part(features)
        logits: Tensor = self.fc(features)
        return logits


class Timm(Plain):
    """With timm's way to drop the head."""

    num_features = 6

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, num_classes: int) -> None:
        self.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()  # type: ignore[assignment]


def net_of(make: Callable[..., nn.Module], seed: int = 1, dtype: torch.dtype = torch.float32, **how: Any) -> Net:
    backbone = from_module(make, **how)(GREY, "batch")
    net = Net(backbone, nn.Linear(backbone.feature_dim, 4, device="meta"))
    materialize(net, generator(seed, "init"), dtype=dtype)
    return net


def refusal(make: Callable[..., nn.Module], shape: tuple[int, int, int] = GREY, **how: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        from_module(make, **how)(shape, "batch")
    return str(caught.value)


def test_torchvisions_network_takes_grey_images_and_any_head() -> None:
    register_module("tv_small", torchvision.models.shufflenet_v2_x0_5, head="fc", channels=3)
    check_model("tv_small", (1, 32, 32))
    trial = toy.config(
        federation={"algorithm": "fedetf", "rounds": 1, "participation": 0.4},
        training={"model": "tv_small", "dtype": "float32", "local_epochs": 1},
    )
    simulation = Simulation(trial, toy.skewed())
    simulation.run_round()
    assert simulation.model.net.backbone.feature_dim == 1024


@pytest.mark.parametrize(("make", "how"), [(Plain, {}), (Plain, {"head": "fc"}), (Timm, {})])
def test_the_head_is_dropped_however_it_is_named(make: Callable[..., nn.Module], how: dict[str, Any]) -> None:
    net = net_of(make, **how)
    assert net.backbone.feature_dim == 6
    assert {name for name, _ in net.named_parameters()} == {
        "backbone.module.conv.weight",
        "backbone.module.conv.bias",
        "head.weight",
        "head.bias",
    }


def test_of_a_sequence_the_last_linear_layer_is_the_head() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 9)))

    assert net_of(make, head="1").backbone.feature_dim == 5
    assert net_of(lambda: nn.Flatten(), head="").backbone.feature_dim == 64


def test_first_values_are_the_modules_own_by_the_seed() -> None:
    def make() -> nn.Module:
        module = Plain()
        nn.init.constant_(module.conv.bias, 0.25)  # type: ignore[arg-type]
        return module

    before = torch.get_rng_state()
    first, again, other, wide = (net_of(make, seed, dtype) for seed, dtype in _SEEDS)
    weights = [net.get_parameter("backbone.module.conv.weight") for net in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(first.get_parameter("backbone.module.conv.bias"), torch.full((6,), 0.25))
    assert torch.equal(wide.get_parameter("backbone.module.conv.weight").float(), weights[0])
    assert torch.equal(torch.get_rng_state(), before)


_SEEDS = [(1, torch.float32), (1, torch.float32), (2, torch.float32), (1, torch.float64)]


def test_the_function_is_told_the_shape_where_it_asks() -> None:
    def make(input_shape: tuple[int, int, int], norm: str) -> nn.Module:
        assert norm == "batch"
        return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], 7), nn.Linear(7, 2))

    assert net_of(make, head="2").backbone.feature_dim == 7


def test_copies_have_the_values_and_cannot_be_filled_anew() -> None:
    net = net_of(lambda: Plain())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(torch.ones(2, *GREY)).logits, net(torch.ones(2, *GREY)).logits)
        with pytest.raises(RunError, match="build the network again"):
            other.backbone.reset_all(generator(1, "init"))


def test_a_head_that_is_not_found_is_told_with_the_layers() -> None:
    class Odd(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(1000, 3)

    assert "fc and head may each be its head; give head=" in refusal(Odd)
    assert "its head is none of fc, classifier" in refusal(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    assert "has no layer 'fcc'; it has conv, fc; its last linear layer is fc" in refusal(Plain, head="fcc")


def test_images_and_outputs_that_do_not_fit_are_told() -> None:
    text = refusal(Plain, (3, 8, 8))
    assert "does not take images of 3x8x8" in text and "it takes 1 channels: change its first layer" in text
    grey = refusal(torchvision.models.resnet18)
    assert "give channels=3 (grey images are repeated)" in grey
    assert "gives shape (2, 6, 6, 6), not (B, d) features" in refusal(lambda: nn.Conv2d(1, 6, 3), head="")
    assert "makes a int, not an nn.Module" in refusal(lambda: 3)  # type: ignore[arg-type,return-value]


def test_what_could_not_be_repeated_or_averaged_is_refused() -> None:
    assert "draws random numbers in training (layer drop)" in refusal(lambda: Plain(drop=nn.Dropout(0.1)))
    net_of(lambda: Plain(drop=nn.Dropout(0.0)))

    class Stateful(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.again = self.conv
            self.scale = torch.ones(3)
            self.register_buffer("mean", torch.zeros(3))
            self.conv.bias.requires_grad_(False)  # type: ignore[union-attr]
            self.tied = nn.Linear(6, 6)
            self.tied.weight = nn.Parameter(torch.ones(6, 6))
            self.more = nn.Linear(6, 6)
            self.more.weight = self.tied.weight

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.conv(x).mean(dim=(2, 3)))
            return logits

    text = refusal(Stateful)
    for part in (
        "shares one parameter between tied.weight and more.weight",
        "does not train conv.bias",
        "keeps the numbers mean in a buffer",
        "keeps the tensor scale as a plain attribute",
    ):
        assert part in text
    assert "layers without sizes (lazy ones)" in refusal(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), head="")


def test_a_federation_trains_one_and_goes_on_from_a_snapshot() -> None:
    register_module("plain_module", Plain, head="fc")
    trial = toy.config(training={"model": "plain_module", "lr": 0.01}, federation={"rounds": 3})
    whole, results = toy.run(trial, toy.skewed())
    part = Simulation(parse(trial.model_dump(mode="json")), toy.skewed())
    part.run_round()
    again = Simulation(trial, toy.skewed())
    again.restore(part.snapshot())
    assert toy.figures(list(again)) == toy.figures(results)[1:]
    assert toy.same_model(again, whole)
