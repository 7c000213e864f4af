"""
An audit without training
=========================

``ng.audit`` with the nearest neighbours for a detector trains nothing, and still says how many labels
are wrong, between which classes, and how many rows are worth looking at.
"""

import matplotlib.pyplot as plt
import numpy as np

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Asymmetric(0.3, {3: 8, 8: 3, 1: 7}), seed=0)
report = ng.audit(data.train.x, data.train.y, detector="neighbours")
low, high = report.noise_rate.low, report.noise_rate.high
print(f"wrong labels: {report.noise_rate:.1%} ({low:.1%} to {high:.1%}); true: {data.train.wrong.mean():.1%}")
print(report.issues.head())

# %%
# Looking at the rows in the order of the report finds nearly all wrong labels in the first fifth.

found = np.cumsum(data.train.wrong[report.issues["row"].to_numpy()])
figure, ax = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
ax.plot(np.arange(1, len(found) + 1), found, label="in the order of the report")
ax.plot([0, len(found)], [0, found[-1]], "--", color="grey", label="in any order")
ax.axvline(int(report.issues["is_label_issue"].sum()), color="tab:red", label="where the report says to stop")
ax.set(xlabel="labels looked at", ylabel="wrong labels found")
ax.legend(frameon=False)
plt.show()
