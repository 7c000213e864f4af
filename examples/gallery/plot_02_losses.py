"""
What a label costs
==================

The more a label contradicts the network, the harder cross-entropy pulls; so wrong labels pull hardest.
Robust losses let go. Here are two classes, and the margin by which the network agrees with the label.
"""

import matplotlib.pyplot as plt
import torch

import noisegate as ng

flips = [[0.8, 0.2], [0.2, 0.8]]
objectives = {
    "cross-entropy": ng.CrossEntropy(2),
    "label smoothing, 0.2": ng.LabelSmoothing(2, alpha=0.2),
    "GCE, q = 0.7": ng.GCE(2, q=0.7),
    "bi-tempered": ng.BiTempered(2, t1=0.5, t2=2.0),
    "forward correction": ng.ForwardCorrection(2, flips),
    "backward correction": ng.BackwardCorrection(2, flips),
}

# %%
# Every objective takes the outputs of a network and labels, and gives one cost a label. The pull is its
# slope, which autograd knows.

figure, (cost_ax, pull_ax) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
labels = torch.ones(241, dtype=torch.long)
for name, objective in objectives.items():
    margin = torch.linspace(-6, 6, 241, requires_grad=True)
    cost = objective(torch.stack([-margin / 2, margin / 2], dim=1), labels, reduction="none")
    (slope,) = torch.autograd.grad(cost.sum(), margin)
    cost_ax.plot(margin.detach(), cost.detach(), label=name)
    pull_ax.plot(margin.detach(), -slope)
    print(f"{name:22} pull on a label contradicted by a margin of 4: {-slope[40]:.3f}")
cost_ax.set(xlabel="margin of the given label", title="what it costs", ylim=(-3, 6))
pull_ax.set(xlabel="margin of the given label", title="how hard it pulls")
cost_ax.legend(frameon=False, fontsize=8)
plt.show()
