"""An objective in a plain PyTorch loop: digits, 40 % of the training labels wrong.

python examples/plain_loop.py
"""

import torch
from torch import nn

import noisegate as ng


def train(objective: ng.objectives.Objective, x: torch.Tensor, y: torch.Tensor, epochs: int) -> nn.Module:
    """Nothing here knows which objective it is: it has a width, a loss and probabilities."""
    torch.manual_seed(0)
    hidden = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    network = nn.Sequential(*hidden, nn.Linear(256, objective.n_outputs))
    objective.init_head_(network[-1])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            objective(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval()


def main(epochs: int = 60) -> dict[str, float]:
    """Clean test accuracy of cross-entropy and Logistic-Normal."""
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)
    x, y = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
    x_test, y_test = torch.from_numpy(data.test.x), torch.from_numpy(data.test.y)
    scores = {}
    for objective in (ng.CrossEntropy(10), ng.LogisticNormal(10)):
        network = train(objective, x, y, epochs)
        objective.eval()
        with torch.no_grad():
            predicted = objective.probs(network(x_test)).argmax(1)
        scores[type(objective).__name__] = (predicted == y_test).float().mean().item()
    return scores


if __name__ == "__main__":
    for name, accuracy in main().items():
        print(f"{name:16s} {accuracy:.3f}")
