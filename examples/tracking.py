"""Follow a training in TensorBoard, MLflow or Weights & Biases: ten lines each, by `on_epoch`.

    python examples/tracking.py tensorboard     (or mlflow, wandb; each needs its package)

`ng.train` calls `on_epoch` with an `Epoch` after every epoch: `epoch.phase_name`, `epoch.epoch` within the phase,
and `epoch.metrics` with the loss and what was measured on validation and test rows. Epochs are counted on through
the phases of a method here.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import noisegate as ng


def numbers(epoch: Any) -> dict[str, float]:
    """What was measured in an epoch."""
    return {name: value for name, value in epoch.metrics.items() if isinstance(value, int | float)}


def tensorboard(data: ng.data.Dataset, folder: str = "runs", **options: Any) -> ng.Fitted:
    """Curves in TensorBoard: `tensorboard --logdir runs`."""
    from torch.utils.tensorboard import SummaryWriter

    count = itertools.count()
    with SummaryWriter(folder) as writer:

        def show(epoch: Any) -> None:
            number = next(count)
            for name, value in numbers(epoch).items():
                writer.add_scalar(name, value, number)

        return ng.train(data, on_epoch=show, **options)


def mlflow(data: ng.data.Dataset, **options: Any) -> ng.Fitted:
    """A run in MLflow: `mlflow ui`."""
    import mlflow

    count = itertools.count()
    with mlflow.start_run():
        mlflow.log_params({name: str(value) for name, value in options.items()})
        fitted = ng.train(
            data, on_epoch=lambda e: mlflow.log_metrics(numbers(e), step=next(count)), **options
        )
        mlflow.log_metrics(fitted.metrics)
    return fitted


def wandb(data: ng.data.Dataset, project: str = "noisegate", **options: Any) -> ng.Fitted:
    """A run in Weights & Biases."""
    import wandb

    count = itertools.count()
    with wandb.init(project=project, config={name: str(value) for name, value in options.items()}) as run:
        fitted = ng.train(data, on_epoch=lambda e: run.log(numbers(e), step=next(count)), **options)
        run.summary.update(fitted.metrics)
    return fitted


if __name__ == "__main__":
    digits = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3), seed=0)
    follow = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}[sys.argv[1]]
    print(follow(digits, method="ln", recipe={"epochs": 10}, seed=0).metrics)
