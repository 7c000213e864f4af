"""An objective in a Lightning module: it is a submodule, so it moves and is saved with the network.

python examples/lightning_module.py        (needs: pip install lightning)
"""

import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import noisegate as ng

try:
    import lightning
except ImportError:
    sys.exit("this example needs Lightning: pip install lightning")


class NoisyClassifier(lightning.LightningModule):
    """Any network whose last layer has `objective.n_outputs` outputs, and any objective."""

    def __init__(self, objective: ng.objectives.Objective) -> None:
        super().__init__()
        self.objective = objective
        self.network = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, objective.n_outputs)
        )
        objective.init_head_(self.network[-1])

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        return self.objective(self.network(x), y)

    def predict_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return self.objective.probs(self.network(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main(epochs: int = 60) -> float:
    """Clean test accuracy of Logistic-Normal on digits with 40 % wrong labels."""
    lightning.seed_everything(0, verbose=False)
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)
    train = TensorDataset(torch.from_numpy(data.train.x), torch.from_numpy(data.train.y))
    test = TensorDataset(torch.from_numpy(data.test.x))
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = NoisyClassifier(ng.LogisticNormal(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on the number of workers
        trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True))
        probabilities = torch.cat(trainer.predict(model, DataLoader(test, batch_size=256)))
    return (probabilities.argmax(1) == torch.from_numpy(data.test.y)).float().mean().item()


if __name__ == "__main__":
    print(f"LogisticNormal   {main():.3f}")
