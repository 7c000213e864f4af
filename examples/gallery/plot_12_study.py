"""
A fair comparison
=================

A study gives every method the same data, the same noise and the same seeds, stores each run once, and
tests what it shows. Two losses and three rates, three seeds each.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from noisegate import studies
from noisegate.studies import Cell, RunSettings, Study

base = RunSettings(
    data={"name": "digits"}, method="ce", network="mlp-64", recipe={"epochs": 15}, evaluate_every=0
)
rates, methods = (0.2, 0.4, 0.6), ("ce", "gce")
cells = tuple(
    Cell(
        row=method,
        column=f"{rate:.0%}",
        settings=base.replace(method=method, noise={"name": "symmetric", "rate": rate}),
    )
    for method in methods
    for rate in rates
)
study = Study(
    name="two-losses", title="Two losses", reference="the gallery", cells=cells, seeds=3, bold="welch"
)

# %%
# Running it again would take no time: finished runs are stored under a key of all their settings.

with tempfile.TemporaryDirectory() as folder:
    results = studies.run(study, folder, workers=1, device="cpu")
accuracy = {
    method: [list(results.values(cell, "test_accuracy").values()) for cell in study if cell.row == method]
    for method in methods
}

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for method, values in accuracy.items():
    mean, deviation = np.mean(values, axis=1), np.std(values, axis=1, ddof=1)
    ax.errorbar(rates, mean, deviation, marker="o", capsize=3, label=method)
    print(method, mean.round(3), "+-", deviation.round(3))
ax.set(xlabel="share of labels redrawn", ylabel="accuracy on clean test labels", xticks=rates)
ax.legend(frameon=False)
plt.show()
