"""
One object in a loop of your own
================================

Plain PyTorch, with an objective in the place of the loss: it says how many outputs the network needs,
what they cost, and which probabilities they stand for.
"""

import matplotlib.pyplot as plt
import torch

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
x, x_test = (torch.as_tensor(part.x / 16, dtype=torch.float32) for part in (data.train, data.test))
y, y_test = (torch.as_tensor(part.y) for part in (data.train, data.test))


def fit(objective: ng.objectives.Objective, epochs: int = 30) -> list[float]:
    """Train by Adam; the accuracy on clean test labels after every epoch."""
    torch.manual_seed(0)
    head = torch.nn.Linear(128, objective.n_outputs)
    objective.init_head_(head)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), head)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    accuracy = []
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            objective(network(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy.append(float((objective.probs(network(x_test)).argmax(1) == y_test).float().mean()))
    return accuracy


# %%
# Nothing in the loop knows which objective it has.

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for name, objective in {
    "cross-entropy": ng.CrossEntropy(10),
    "Logistic-Normal": ng.LogisticNormal(10, temperature=1.0, min_scale=0.5),
    "forward correction": ng.ForwardCorrection(10, ng.noise.Symmetric(0.4).transition(10)),
}.items():
    accuracy = fit(objective)
    ax.plot(range(1, len(accuracy) + 1), accuracy, label=f"{name}, {objective.n_outputs} outputs")
    print(f"{name:18} best {max(accuracy):.3f}, last {accuracy[-1]:.3f}")
ax.set(xlabel="epoch", ylabel="accuracy on clean test labels")
ax.legend(frameon=False)
plt.show()
