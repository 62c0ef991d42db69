"""Backbones, heads and first values against golden figures and worked examples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrela_bench import models
from fedrela_bench.algorithms.sse_c import SSECHead
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import (
    MODEL_NAMES,
    Backbone,
    CosineETFHead,
    DotRegressionETFHead,
    Net,
    build_backbone,
    default_model,
    dot_regression_loss,
    etf_lengths,
    materialize,
    model_names,
    register_model,
    simplex_etf,
)
from fedrela_bench.models.heads import etf_from_basis
from fedrela_bench.rng import generator

Golden = Callable[[str], Path]
FEATURES = {"digits": 64, "lenet": 84, "lenet_wide": 128, "cnn": 192, "fmcnn": 512, "mlp": 128}
FEATURES |= {"resnet8": 256, "resnet18": 512, "resnet34": 512, "resnet50": 2048}
SIZES = {"digits": (8, 28, 32), "lenet": (16, 28, 32), "lenet_wide": (16, 32), "cnn": (16, 28, 32), "fmcnn": (16, 64)}


def net_of(name: str, shape: tuple[int, int, int], classes: int = 10, norm: str = "batch", **kind: Any) -> Net:
    backbone = build_backbone(name, shape, norm)
    net = Net(backbone, nn.Linear(backbone.feature_dim, classes, device="meta"))
    materialize(net, generator(1, "init"), **kind)
    return net


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else np.asarray(actual)
    np.testing.assert_allclose(actual, np.asarray(expected), rtol=tolerance, atol=tolerance)


def hash_fill(start: int, size: int) -> NDArray[np.float64]:
    """The golden files' pseudo-random numbers in [-1, 1) for indices start, start + 1, ..."""
    x = np.arange(start, start + size, dtype=np.uint64).astype(np.uint32)
    x = x * np.uint32(2654435761)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(2246822519)
    return 2.0 * ((x ^ (x >> np.uint32(13))).astype(np.float64) / 2.0**32) - 1.0


# --- ResNets ---------------------------------------------------------------------------------------------------------


def fill_resnet(net: Net, case: dict[str, Any]) -> None:
    """The golden file's parameters; its unused projection takes its stretch of the index and is left out."""
    ours = dict(net.backbone.named_parameters()) | {f"linear.{name}": p for name, p in net.head.named_parameters()}
    index = case["fill_start"]
    for name, shape in case["state_dict"]:
        if "running" in name or "num_batches" in name:
            continue
        size, fan_in = math.prod(shape), math.prod(shape[1:])
        values = hash_fill(index, size).reshape(shape)
        index += size
        if name.startswith("projection"):
            continue
        scale = {4: math.sqrt(6 / fan_in), 2: math.sqrt(3 / fan_in), 1: 0.1}[len(shape)]
        offset = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
        with torch.no_grad():
            ours.pop(name).copy_(torch.from_numpy(offset + scale * values))
    assert index == case["fill_end"]
    assert not ours


def check_outputs(outputs: models.Outputs, gold: dict[str, Any]) -> None:
    features, logits = outputs
    close(logits[:, :5], gold["logits_first5"], 1e-8)
    close(logits.sum(), gold["logits_sum"], 1e-8)
    close(logits.abs().sum(), gold["logits_abs_sum"], 1e-8)
    close(features[:, :5], gold["feature_first5"], 1e-8)
    close(features.norm(dim=1), gold["feature_norms"], 1e-8)


@pytest.mark.parametrize("index", [0, 1])
def test_resnets_reproduce_golden_outputs_and_statistics(golden: Golden, index: int) -> None:
    case = json.loads(golden("resnet.json").read_text())["cases"][index]
    net = net_of(case["model"], (3, 32, 32), case["C"], dtype=torch.float64)
    fill_resnet(net, case)
    assert sum(p.numel() for p in net.parameters()) == case["params_without_projection"]
    shape = case["input_shape"]
    images = torch.from_numpy(2 * hash_fill(case["input_start"], math.prod(shape)).reshape(shape))
    images = images.to(memory_format=torch.channels_last)
    with torch.no_grad():
        check_outputs(net.eval()(images), case["float64"]["eval"])
        check_outputs(net.train()(images), case["float64"]["train"])
    buffers = dict(net.backbone.named_buffers())
    for name, (mean, norm) in case["float64"]["train"]["running_after"].items():
        close(buffers[name].mean(), mean, 1e-8)
        close(buffers[name].norm(), norm, 1e-8)
    assert buffers["bn1.num_batches_tracked"] == 1


def test_group_norm_resnets_have_no_statistics_and_treat_samples_alone() -> None:
    net = net_of("resnet8", (3, 32, 32), norm="group")
    assert not list(net.buffers())
    images = torch.from_numpy(hash_fill(0, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)).float()
    close(net(images).logits[:1], net(images[:1]).logits.detach().numpy(), 1e-4)


@torch.no_grad()
def test_resnet50_is_the_published_network() -> None:
    torchvision_models = pytest.importorskip("torchvision.models")
    net = net_of("resnet50", (3, 96, 96), classes=1000)
    assert sum(p.numel() for p in net.parameters()) == 25_557_032
    assert sum(p.numel() for p in net.backbone.parameters()) == 23_508_032
    theirs = torchvision_models.resnet50(weights=None).eval()
    values = {name.replace("shortcut", "downsample"): value for name, value in net.backbone.state_dict().items()}
    generator_ = torch.Generator().manual_seed(1)
    for name, value in values.items():
        # First values of norms are 0 and 1: others show that each is where it belongs.
        if value.dim() == 1:
            value.copy_(torch.rand(value.shape, generator=generator_) + (0.5 if "var" in name else 0.0))
    theirs.load_state_dict(values | {f"fc.{name}": value for name, value in net.head.state_dict().items()})
    images = torch.from_numpy(hash_fill(3, 2 * 3 * 96 * 96).reshape(2, 3, 96, 96)).float()
    close(net.eval()(images).logits, theirs(images).numpy(), 1e-3)


def test_resnet50_has_the_small_stem_for_small_images() -> None:
    for side, kernel, stride in ((63, 3, 1), (64, 7, 2)):
        stem = build_backbone("resnet50", (3, side, side)).conv1
        assert isinstance(stem, nn.Conv2d)
        assert (stem.kernel_size, stem.stride) == ((kernel, kernel), (stride, stride))
    assert not list(net_of("resnet50", (3, 64, 64), norm="group").buffers())


# --- shapes, first values, registry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_maps_images_to_features_and_logits(name: str, channels: int) -> None:
    for side in SIZES.get(name, (8,)):
        net = net_of(name, (channels, side, side), classes=7)
        images = torch.zeros(2, channels, side, side).to(memory_format=torch.channels_last)
        features, logits = net(images)
        assert features.shape == (2, FEATURES[name]) == (2, net.backbone.feature_dim)
        assert logits.shape == (2, 7)
        logits.sum().backward()
        assert all(p.grad is not None for p in net.parameters())


def test_published_sizes() -> None:
    def size(name: str, shape: tuple[int, int, int]) -> int:
        return sum(p.numel() for p in net_of(name, shape).parameters())

    assert size("fmcnn", (1, 28, 28)) == 582_026
    assert size("mlp", (1, 1, 30)) == (30 + 1) * 256 + (256 + 1) * 128 + (128 + 1) * 10
    assert size("lenet", (3, 32, 32)) == 62_006
    assert size("lenet_wide", (3, 32, 32)) == 253_290
    assert size("cnn", (3, 32, 32)) == 797_962


def test_a_network_too_narrow_for_a_simplex_is_told_which_are_wide_enough() -> None:
    for make in (lambda: simplex_etf(84, 100, generator(1, "x")), lambda: SSECHead(84, 100, 0, 0.6, False)):
        with pytest.raises(
            ConfigError, match="lenet_wide, cnn, fmcnn, mlp, resnet8, resnet18, resnet34, resnet50"
        ) as caught:
            make()
        assert "digits" not in str(caught.value) and "lenet," not in str(caught.value)
    assert SSECHead(FEATURES["lenet_wide"], 100, 0, 0.6, False).weight.shape == (100, 128)
    with pytest.raises(ConfigError, match="no model of this package has 2049; register a wider one"):
        simplex_etf(512, 2049, generator(1, "x"))


def test_pooling_before_the_activation_is_the_usual_network() -> None:
    net = net_of("cnn", (3, 32, 32), dtype=torch.float64)
    x = images = torch.from_numpy(hash_fill(5, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32))
    for conv in net.backbone.convs:  # type: ignore[union-attr]
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(conv(x), 0.01), 2)
    x = x.flatten(1)
    for linear in net.backbone.linears:  # type: ignore[union-attr]
        x = nn.functional.leaky_relu(linear(x), 0.01)
    assert torch.equal(net.features(images), x)


def test_images_too_small_are_refused_with_the_smallest_size() -> None:
    with pytest.raises(ConfigError, match="at least 16x16 pixels, these have 8x8"):
        build_backbone("lenet", (1, 8, 8))
    assert build_backbone("lenet", (1, 16, 16)).feature_dim == 84


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean lenet"):
        build_backbone("lenett", (3, 32, 32))
    with pytest.raises(ConfigError, match="valid: batch, group"):
        build_backbone("resnet8", (3, 32, 32), "layer")


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(models._BUILDERS)
    yield
    models._BUILDERS.clear()
    models._BUILDERS.update(before)


@pytest.mark.usefixtures("registry")
def test_a_model_of_ones_own_is_registered_by_a_decorator() -> None:
    class Flat(Backbone):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            self.scale = nn.LayerNorm(size)

        def forward(self, images: Tensor) -> Tensor:
            scaled: Tensor = self.scale(images.flatten(1))
            return scaled

    @register_model("flat")
    def build(input_shape: tuple[int, int, int], norm: str) -> Backbone:
        return Flat(math.prod(input_shape))

    assert "flat" in model_names()
    assert net_of("flat", (1, 4, 4))(torch.ones(3, 1, 4, 4)).features.shape == (3, 16)
    with pytest.raises(ConfigError, match="registered already"):
        register_model("flat")(build)


def test_construction_takes_no_memory_and_touches_no_global_generator() -> None:
    before, numpy_before = torch.get_rng_state(), repr(np.random.get_state())
    for name in MODEL_NAMES:
        assert all(tensor.is_meta for tensor in build_backbone(name, (3, 32, 32)).state_dict().values())
    for head in (CosineETFHead(8, 4), DotRegressionETFHead(8, 4)):
        assert all(tensor.is_meta for tensor in head.state_dict().values())
        materialize(head, generator(1, "init"))
    net_of("lenet", (1, 28, 28))
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == numpy_before


@pytest.mark.parametrize("name", ["lenet", "resnet8"])
def test_first_values_repeat_and_do_not_depend_on_the_dtype(name: str) -> None:
    narrow, again = net_of(name, (3, 32, 32)), net_of(name, (3, 32, 32))
    wide = net_of(name, (3, 32, 32), dtype=torch.float64)
    for (key, value), other, double in zip(
        narrow.state_dict().items(), again.state_dict().values(), wide.state_dict().values(), strict=True
    ):
        assert torch.equal(value, other)
        assert torch.equal(value, double.to(value.dtype)), key
        assert double.dtype == (torch.int64 if "num_batches" in key else torch.float64)


def test_first_values_are_torchs_default_distributions() -> None:
    net = net_of("resnet8", (3, 32, 32))
    for name, parameter in net.named_parameters():
        if parameter.dim() == 1 and "head" not in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
    conv = net.get_parameter("backbone.layer2.0.conv1.weight")
    bound = 1 / math.sqrt(64 * 9)
    assert bound * 0.999 < conv.abs().max() <= bound
    assert conv.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert net.get_parameter("head.bias").abs().max() <= 1 / math.sqrt(256)
    for name, buffer in net.named_buffers():
        assert (buffer == (1 if name.endswith("running_var") else 0)).all()


def test_a_module_that_nothing_fills_is_refused() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(2))

    with pytest.raises(ConfigError, match=r"nothing initialises 0 \(Odd\).*reset"):
        materialize(nn.Sequential(Odd()), generator(1, "init"))


def test_default_models() -> None:
    assert default_model("digits", (1, 8, 8), "lt") == "digits"
    assert default_model("fashion_mnist", (1, 28, 28), "lt") == "cnn"
    assert default_model("cifar10", (3, 32, 32), "step") == "cnn"
    assert default_model("cifar10", (3, 32, 32), "lt") == "resnet18"
    assert default_model("cifar100", (3, 32, 32), "lt") == "resnet34"
    for side in (8, 15, 16, 31, 64):
        build_backbone(default_model("folder:x", (3, side, side), "balanced"), (3, side, side))


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example(golden: Golden) -> Callable[[str], dict[str, Any]]:
    examples = json.loads(golden("algorithm_examples.json").read_text())["examples"]
    return lambda name: {**examples[name]["inputs"], "expected": examples[name]["expected"]}


@pytest.fixture(scope="module")
def etf_cases(golden: Golden) -> dict[str, dict[str, NDArray[Any]]]:
    with np.load(golden("etf.npz"), allow_pickle=False) as file:
        names = [case["name"] for case in json.loads(str(file["meta_json"]))["etf"]]
        return {
            name: {key.split("__")[1]: file[key] for key in file.files if key.startswith(f"etf_{name}__")}
            for name in names
        }


def dotreg_head(gold: dict[str, NDArray[Any]]) -> DotRegressionETFHead:
    head = DotRegressionETFHead(*gold["P"].shape)
    materialize(head, generator(1, "init"), dtype=torch.float64)
    assert head.bn is not None
    with torch.no_grad():
        head.etf.copy_(torch.tensor(gold["M"]))
        head.bn.weight.copy_(torch.tensor(gold["bn_weight"]))
        head.bn.bias.copy_(torch.tensor(gold["bn_bias"]))
    return head


def test_golden_etf_matrices_and_lengths(etf_cases: dict[str, dict[str, NDArray[Any]]]) -> None:
    for gold in etf_cases.values():
        close(etf_from_basis(gold["P"]), gold["M"])
        close(etf_lengths(torch.tensor(gold["y"]), gold["P"].shape[1], torch.float64), gold["Ew"][0])


def test_golden_dot_regression_head_loss_and_gradients(etf_cases: dict[str, dict[str, NDArray[Any]]]) -> None:
    for gold in etf_cases.values():
        head, x, y = dotreg_head(gold), torch.tensor(gold["X"], requires_grad=True), torch.tensor(gold["y"])
        if len(x) > 1:
            close(head.eval().unit(x), gold["H_eval"])
            close(head(x), gold["logits_eval"])
            close(head(x).softmax(dim=1), gold["softmax_eval"])
        unit = head.train().unit(x)
        unit.retain_grad()
        close(unit, gold["H_train"])
        close(unit @ head.etf, gold["logits_train"])
        loss = dot_regression_loss(unit, head.etf, y)
        loss.backward()  # type: ignore[no-untyped-call]
        close(loss, gold["loss_reg_dot"])
        close(unit.grad, gold["grad_H"])
        close(x.grad, gold["grad_x"])
        assert head.bn is not None
        for key, parameter in (("grad_bn_weight", head.bn.weight), ("grad_bn_bias", head.bn.bias)):
            close(torch.zeros(()) if parameter.grad is None else parameter.grad, gold[key])
        close(head.bn.running_mean, gold["bn_running_mean_after"])
        close(head.bn.running_var, gold["bn_running_var_after"])


def test_golden_dot_regression_on_features_of_any_length(etf_cases: dict[str, dict[str, NDArray[Any]]]) -> None:
    for gold in etf_cases.values():
        x = torch.tensor(gold["X"], requires_grad=True)
        loss = dot_regression_loss(x, torch.tensor(gold["M"]), torch.tensor(gold["y"]))
        loss.backward()  # type: ignore[no-untyped-call]
        close(loss, gold["loss_reg_dot_raw"])
        close(x.grad, gold["grad_raw"])


def test_golden_single_sample_bypasses_batch_norm_in_training(etf_cases: dict[str, dict[str, NDArray[Any]]]) -> None:
    gold = etf_cases["b1_d16_c5"]
    close(dotreg_head(gold).train()(torch.tensor(gold["X"])), gold["logits_train"])
    bare = DotRegressionETFHead(gold["P"].shape[0], gold["P"].shape[1], bn=False)
    materialize(bare, generator(1, "init"), dtype=torch.float64)
    bare.etf.copy_(torch.tensor(gold["M"]))
    close(bare.eval()(torch.tensor(gold["X"])), gold["logits_eval"])


def test_worked_example_of_dot_regression(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("fedetf_dotreg")
    unit, etf = (torch.tensor(data[key], dtype=torch.float64) for key in ("normalised_features", "ETF"))
    labels, expected = torch.tensor(data["labels"]), data["expected"]
    close(etf_lengths(labels, 3, torch.float64), expected["class_lengths"])
    close(dot_regression_loss(unit, etf, labels), expected["loss"])
    assert dot_regression_loss(etf.T[labels], etf, labels).item() < 1e-30


def test_worked_example_of_the_cosine_head(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("fedetf_original")
    features, etf = (torch.tensor(data[key], dtype=torch.float64) for key in ("features", "ETF"))
    head = CosineETFHead(5, 3)
    materialize(head, generator(1, "init"), dtype=torch.float64)
    assert head.beta == 1
    head.projection, head.etf = nn.Identity(), etf  # type: ignore[assignment]
    head.beta.data.fill_(data["beta"])
    expected, labels = data["expected"], torch.tensor(data["labels"])
    close(head.unit(features), expected["normalised"])
    close(head.cosines(features), expected["cosine_logits"])
    close(head(features).softmax(dim=1), expected["posterior_beta"])
    close(head.cosines(features).softmax(dim=1), expected["posterior_scale1"])
    close(nn.functional.cross_entropy(head(features), labels), expected["loss_gamma0"])


def test_worked_example_of_the_gram_matrix(example: Callable[[str], dict[str, Any]]) -> None:
    data = example("etf_gram")
    etf = etf_from_basis(np.array(data["P"]))
    close(etf, data["expected"]["M"])
    close(etf.T @ etf, data["expected"]["gram"])


@pytest.mark.parametrize(("dim", "classes"), [(2, 2), (10, 10), (512, 100)])
def test_simplex_etf_is_equiangular(dim: int, classes: int) -> None:
    etf = simplex_etf(dim, classes, generator(7, "etf"))
    assert etf.shape == (dim, classes)
    gram = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(gram, 1.0)
    close(etf.T @ etf, gram)
    close(etf.sum(axis=1), np.zeros(dim))
    np.testing.assert_array_equal(etf, simplex_etf(dim, classes, generator(7, "etf")))


def test_worked_example_of_flat_posteriors(example: Callable[[str], dict[str, Any]]) -> None:
    for classes, expected in example("etf_posterior_flatness")["expected"].items():
        etf = torch.from_numpy(simplex_etf(int(classes), int(classes), generator(7, "etf")))
        assert (etf.T @ etf).softmax(dim=1).max().item() == pytest.approx(expected, abs=1e-9)


def test_etf_is_a_buffer_drawn_once_per_seed_and_ready_to_load() -> None:
    for build in (lambda: CosineETFHead(16, 5), lambda: DotRegressionETFHead(16, 5)):
        head, again, other = build(), build(), build()
        for module, seed in ((head, 1), (again, 1), (other, 2)):
            materialize(module, generator(seed, "init"))
        assert "etf" in dict(head.named_buffers())
        assert torch.equal(head.etf, again.etf)
        assert not torch.equal(head.etf, other.etf)
        other.load_state_dict(head.state_dict())
        assert torch.equal(head.etf, other.etf)
        assert head(torch.ones(3, 16)).shape == (3, 5)


def test_etf_heads_refuse_sizes_without_a_simplex() -> None:
    with pytest.raises(ConfigError, match="100 classes needs as many feature dimensions, the model has 64"):
        DotRegressionETFHead(64, 100)
    with pytest.raises(ConfigError, match="at least 2 classes"):
        CosineETFHead(64, 1)
    assert CosineETFHead(64, 100).etf.shape == (100, 100)


def test_dot_regression_of_a_feature_vector_of_zeros_is_finite_and_moves_nothing() -> None:
    etf = torch.eye(4, 3, dtype=torch.float64)
    unit = torch.tensor([[0.6, 0.8, 0, 0], [0, 0, 0, 0]], dtype=torch.float64, requires_grad=True)
    loss = dot_regression_loss(unit, etf, torch.tensor([0, 1]))
    loss.backward()
    alone = dot_regression_loss(unit[:1].detach(), etf, torch.tensor([0]))
    assert float(loss.detach()) == pytest.approx(float(alone) / 2)
    assert unit.grad is not None and torch.equal(unit.grad[1], torch.zeros(4, dtype=torch.float64))
