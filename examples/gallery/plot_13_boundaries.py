"""
Boundaries learnt from wrong labels
===================================

Two moons with 35 % of the labels wrong, and what four methods make of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import noisegate as ng

data = ng.data.load("moons", n=300).corrupt(ng.noise.Symmetric(0.35, include_self=False), seed=0)
methods = ("ce", "gce", "ln", "elr")
fitted = {
    method: ng.train(
        data,
        method,
        network="mlp-64-64",
        recipe={"epochs": 80, "batch_size": 32, "lr": 3e-3},
        device="cpu",
        evaluate_every=0,
        progress=False,
    )
    for method in methods
}

# %%
# Crosses are wrong labels. A boundary with islands around crosses has memorised them.

a, b = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1.1, 1.6, 80))
grid = np.stack([a.ravel(), b.ravel()], axis=1).astype(np.float32)
wrong = data.train.wrong
figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained", sharey=True)
for ax, (method, model) in zip(axes, fitted.items(), strict=True):
    p = model.predict_proba(grid)[:, 1].reshape(a.shape)
    ax.contourf(a, b, p, levels=[0, 0.5, 1], colors=["#c6dbef", "#fdd0a2"])
    ax.scatter(*data.train.x[~wrong].T, c=data.train.y[~wrong], cmap="coolwarm", s=6)
    ax.scatter(
        *data.train.x[wrong].T, c=data.train.y[wrong], cmap="coolwarm", s=16, marker="x", linewidths=0.8
    )
    ax.set(title=f"{method}: {model.metrics['test_accuracy']:.1%}", xticks=[], yticks=[])
    print(f"{method:4} accuracy on clean test labels {model.metrics['test_accuracy']:.3f}")
plt.show()
