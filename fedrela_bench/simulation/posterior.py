"""The posterior matrix Q of one client at the global model (FedReLa, eq. 1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms.base import Algorithm, LocalContext
from fedrela_bench.config import TrialConfig
from fedrela_bench.simulation.batches import batch_bounds
from fedrela_bench.simulation.flat import FlatModel


def client_posterior(
    model: FlatModel, algorithm: Algorithm, context: LocalContext, config: TrialConfig, refresh: int
) -> Tensor:
    """(n_k, C) float64: softmax of the posterior logits, mean over views, rows in local order.

    With `posterior_bn = "batch"` the backbone normalises by the statistics of shuffled batches of `posterior_batch`,
    the head stays in eval mode, and the running statistics are put back. The caller has loaded the global model.

    Args:
        model: at the global model.
        algorithm: supplies the logits.
        context: the client.
        config: the trial.
        refresh: 0 at T, then 1, 2, ...; keys shuffling and augmentation.
    """
    options = config.relabel
    algorithm.prepare_eval(model.net, "posterior")
    by_batch = options.posterior_bn == "batch" and not (context.samples == 1 and config.training.short_batch == "join")
    kept = (model.buffers.clone(), [counter.clone() for counter in model.counters])
    model.net.backbone.train(by_batch)
    shuffle, augment = (
        context.generator(f"posterior shuffle {refresh}"),
        context.generator(f"posterior augment {refresh}"),
    )
    total = torch.zeros(context.samples, algorithm.num_classes, dtype=torch.float64, device=context.images.device)
    for _ in range(options.posterior_views):
        shuffled = by_batch and config.training.shuffle
        order = shuffle.permutation(context.samples) if shuffled else np.arange(context.samples)
        draws = context.pipeline.draws(augment, context.samples) if options.posterior_augment else None
        _add_view(total, model, algorithm, context, config, order, draws)
    model.buffers.copy_(kept[0])
    for counter, old in zip(model.counters, kept[1], strict=True):
        counter.copy_(old)
    return total.div_(options.posterior_views)


def _add_view(
    total: Tensor,
    model: FlatModel,
    algorithm: Algorithm,
    context: LocalContext,
    config: TrialConfig,
    order: np.ndarray,
    draws: np.ndarray | None,
) -> None:
    options, pipeline, device = config.relabel, context.pipeline, context.images.device
    head = algorithm.posterior_heads[0] if options.posterior_head == "auto" else options.posterior_head
    rows = torch.from_numpy(order).to(device)
    moves = None if draws is None else torch.from_numpy(draws).to(device)
    joins = model.has_batch_norm and options.posterior_bn == "batch"
    bounds = batch_bounds(len(order), options.posterior_batch, config.training.short_batch, joins)
    with torch.no_grad():
        for start, stop in bounds:
            part = rows[start:stop]
            images = context.images[part]
            inputs = pipeline.plain(images) if moves is None else pipeline.train(images, moves[start:stop])
            logits = algorithm.posterior(model.net, model.net(inputs), context.server, head)
            total[part] += (logits.double() * options.posterior_scale).softmax(dim=1)
