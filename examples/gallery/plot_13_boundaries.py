"""
Boundaries learnt from wrong labels
===================================

Two moons with 35 % of the labels wrong, and what five classifiers make of them. One of them fails: this
run of Logistic-Normal at its default temperature ends with the classes exchanged. Its covariance can
explain the labels of a whole class as noise, and then nothing pulls the mean back. ``ng.train`` logs a
warning when a fit looks like that; a lower temperature or a larger ``min_scale`` prevents it here.
"""

import matplotlib.pyplot as plt
import numpy as np

import noisegate as ng

data = ng.data.load("moons", n=300).corrupt(ng.noise.Symmetric(0.35, include_self=False), seed=0)
methods = {
    "ce": "ce",
    "gce": "gce",
    "elr": "elr",
    "ln": "ln",
    "ln, temperature 0.5": ng.methods.get("ln", temperature=0.5),
}
fitted = {
    name: ng.train(
        data,
        method,
        network="mlp-64-64",
        recipe={"epochs": 80, "batch_size": 32, "lr": 3e-3},
        device="cpu",
        evaluate_every=0,
        progress=False,
    )
    for name, method in methods.items()
}

# %%
# Crosses are wrong labels. A boundary with islands around crosses has memorised them.

a, b = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1.1, 1.6, 80))
grid = np.stack([a.ravel(), b.ravel()], axis=1).astype(np.float32)
wrong = data.train.wrong
figure, axes = plt.subplots(1, 5, figsize=(13, 2.7), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, fitted.items(), strict=True):
    p = model.predict_proba(grid)[:, 1].reshape(a.shape)
    ax.contourf(a, b, p, levels=[0, 0.5, 1], colors=["#c6dbef", "#fdd0a2"])
    ax.scatter(*data.train.x[~wrong].T, c=data.train.y[~wrong], cmap="coolwarm", s=6)
    ax.scatter(
        *data.train.x[wrong].T, c=data.train.y[wrong], cmap="coolwarm", s=16, marker="x", linewidths=0.8
    )
    ax.set(title=f"{name}: {model.metrics['test_accuracy']:.1%}", xticks=[], yticks=[])
    print(f"{name:20} accuracy on clean test labels {model.metrics['test_accuracy']:.3f}")
plt.show()
