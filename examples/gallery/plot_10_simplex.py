"""
A distribution over class probabilities
=======================================

The Logistic-Normal distribution is a normal distribution of logits, seen as probabilities. Its mean says
which class, its covariance how unsure the label is, and between which classes.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import noisegate as ng

kinds = {
    "sure of class 1": ng.LogisticNormalDistribution(torch.tensor([2.0, 0.0]), scale=0.5),
    "unsure of everything": ng.LogisticNormalDistribution(torch.zeros(2), scale=1.6),
    "class 1 or class 2": ng.LogisticNormalDistribution(
        torch.tensor([1.0, 1.0]), c=torch.tensor([1.2, -1.2]), scale=0.4
    ),
}

# %%
# The density at every point of the triangle of three probabilities.

a, b = np.meshgrid(np.linspace(0.005, 0.99, 140), np.linspace(0.005, 0.99, 140))
inside = a + b < 0.995
points = torch.as_tensor(np.stack([a, b, 1 - a - b], axis=-1)[inside], dtype=torch.float32)
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), layout="constrained")
for ax, (name, law) in zip(axes, kinds.items(), strict=True):
    density = law.log_prob(points).exp().numpy()
    x, y = points[:, 1] + points[:, 0] / 2, points[:, 0] * np.sqrt(0.75)
    ax.tricontourf(x, y, density.clip(max=np.quantile(density, 0.98)), levels=14, cmap="Blues")
    ax.plot([0, 1, 0.5, 0], [0, 0, np.sqrt(0.75), 0], color="black", linewidth=0.8)
    for spot, text in (((0.5, 0.92), "class 1"), ((1.0, -0.07), "class 2"), ((0.0, -0.07), "class 3")):
        ax.text(*spot, text, ha="center", fontsize=8)
    ax.set(title=name, aspect="equal", xlim=(-0.1, 1.1), ylim=(-0.12, 1))
    ax.set_axis_off()
    print(f"{name}: mean of 2,000 draws {law.sample((2000,)).mean(0).numpy().round(2)}")
plt.show()
