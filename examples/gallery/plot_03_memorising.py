"""
How a network memorises, and how a loss prevents it
===================================================

Cross-entropy learns the right labels first and the wrong ones later. We train on digits of which 40 % of
the labels are wrong and look, after every epoch, at the accuracy on clean test labels.
"""

import matplotlib.pyplot as plt

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
curves = {}
for method in ("ce", "gce", "ln"):
    seen = []
    ng.train(
        data,
        method,
        network="mlp-128",
        recipe={"epochs": 40},
        device="cpu",
        on_epoch=seen.append,
        progress=False,
    )
    curves[method] = [epoch.metrics["test_accuracy"] for epoch in seen]

# %%
# Cross-entropy has its best epoch early and loses most of it again. Which epoch is the best cannot be
# seen without clean labels, but noisy validation rows are a good substitute: ``recipe={"keep": "best"}``.

figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for method, accuracy in curves.items():
    ax.plot(range(1, len(accuracy) + 1), accuracy, label=method)
    print(f"{method:4} best {max(accuracy):.3f}, last {accuracy[-1]:.3f}")
ax.set(xlabel="epoch", ylabel="accuracy on clean test labels", title="40 % of the labels are redrawn")
ax.legend(frameon=False)
plt.show()
