"""Training the same network with noisegate, a plain PyTorch loop, skorch and Lightning, in turn in one process.

    python -m venv .peers && .peers/bin/pip install -c constraints.txt . psutil skorch lightning
    taskset -c 0,1 .peers/bin/python benchmarks/peers.py        writes results/peers.md

skorch and Lightning are installed into an environment of their own; noisegate does not need them. Everybody
trains the same number of epochs on the same rows with the same batch size, Adam and cross-entropy, full
batches only, without validation, logging or checkpoints. The plain loop and Lightning read a DataLoader without
workers. A fit counts from arrays to the trained network, after one that is not timed; wall seconds.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable

import lightning
import numpy as np
import torch
from in_turn import machine, write
from skorch import NeuralNetClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import noisegate as ng

FEATURES, CLASSES, BATCH, RATE = 64, 10, 256, 1e-3


def network() -> nn.Sequential:
    """noisegate's own "mlp": two hidden layers of 256."""
    return nn.Sequential(
        nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )


def loader(x: Tensor, y: Tensor) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(x, y), BATCH, shuffle=True, drop_last=True)


def plain(x: Tensor, y: Tensor, epochs: int) -> None:
    net, loss = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    for _ in range(epochs):
        for some_x, some_y in loader(x, y):
            optimizer.zero_grad()
            loss(net(some_x), some_y).backward()
            optimizer.step()


class Module(lightning.LightningModule):
    """The network, its loss and its optimiser."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), RATE)


def with_lightning(x: Tensor, y: Tensor, epochs: int) -> None:
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), loader(x, y))


def with_skorch(x: Tensor, y: Tensor, epochs: int) -> None:
    NeuralNetClassifier(
        network, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=RATE, max_epochs=epochs,
        batch_size=BATCH, train_split=None, verbose=0, iterator_train__shuffle=True,
        iterator_train__drop_last=True,
    ).fit(x.numpy(), y.numpy())  # fmt: skip


def with_noisegate(x: Tensor, y: Tensor, epochs: int) -> None:
    recipe = {"epochs": epochs, "batch_size": BATCH, "optimizer": "adam", "lr": RATE}
    ng.NoisyLabelClassifier("ce", network="mlp-256-256", recipe=recipe, device="cpu", random_state=0).fit(
        x.numpy(), y.numpy()
    )


SIDES: dict[str, Callable[[Tensor, Tensor, int], None]] = {
    "noisegate": with_noisegate,
    "plain PyTorch": plain,
    "skorch": with_skorch,
    "Lightning": with_lightning,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(asked.rows, FEATURES)).astype(np.float32))
    y = x[:, :CLASSES].argmax(1)
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    for turn in range(asked.turns + 1):
        for name, fit in SIDES.items():
            started = time.perf_counter()
            fit(x, y, asked.epochs)
            if turn:
                times[name].append(time.perf_counter() - started)
    rows = [
        f"| {name} | {statistics.median(found):.2f} | "
        f"{statistics.median(a / b for a, b in zip(found, times['noisegate'], strict=True)):.2f} |"
        for name, found in times.items()
    ]
    write(
        "peers",
        [
            "# Training beside plain PyTorch, skorch and Lightning",
            "",
            f"`python benchmarks/peers.py --turns {asked.turns} --rows {asked.rows} --epochs {asked.epochs}`: "
            f"batches of {BATCH} of {FEATURES} numbers, hidden layers 256-256, {torch.get_num_threads()} threads, "
            f"{machine('torch', 'skorch', 'lightning')}; load {os.getloadavg()[0]:.0f}.",
            "",
            "| side | seconds of a fit | times noisegate's |",
            "|---|---|---|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
