"""
Four ways for labels to go wrong
================================

The same two moons and about the same share of wrong labels each time, in four different places.
"""

import matplotlib.pyplot as plt
import numpy as np

import noisegate as ng

data = ng.data.load("moons", n=600)
noises = {
    "symmetric": ng.noise.Symmetric(0.25, include_self=False),
    "one class only": ng.noise.Asymmetric(0.5, {0: 1}),
    "instance-dependent": ng.noise.InstanceDependent(0.25),
}
observed = {name: data.corrupt(noise, seed=0).train.y for name, noise in noises.items()}

# %%
# A noise of your own is a function of labels and inputs; here labels go wrong near the boundary, where
# people would be unsure.

apart = np.linalg.norm(data.train.x[:, None] - data.train.x, axis=2)
apart[data.train.y[:, None] == data.train.y] = np.inf
distance = apart.min(axis=1)  # to the nearest point of the other class
near = np.argsort(distance)[: int(0.25 * len(distance))]
observed["near the boundary"] = data.train.y.copy()
observed["near the boundary"][near] ^= 1

figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), layout="constrained", sharex=True, sharey=True)
for ax, (name, given) in zip(axes.flat, observed.items(), strict=True):
    wrong = given != data.train.y
    ax.scatter(*data.train.x.T, c=data.train.y, cmap="coolwarm", s=8, alpha=0.4)
    ax.scatter(*data.train.x[wrong].T, facecolors="none", edgecolors="black", s=28, linewidths=0.7)
    ax.set(title=f"{name}: {wrong.mean():.0%} wrong", xticks=[], yticks=[])
    print(ng.noise.describe(data.train.y, given).transition.round(2).tolist(), name)
plt.show()
