"""
How many labels to look at
==========================

A ranking of suspicious labels ends somewhere. ``find_label_issues`` has two points to stop at: *look*,
where precision and recall balance, and *sure*, where nearly all that is flagged is wrong.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.2), seed=0)
x, y = data.train.x / 16, data.train.y
probs = cross_val_predict(LogisticRegression(max_iter=300), x, y, cv=3, method="predict_proba")
judgement = ng.quality.judge(probs, y)
print({point: f"expected precision {value:.0%}" for point, value in judgement.precision.items()})

# %%
# Rows in the order of suspicion: the share of wrong labels among the first n, and how many of all wrong
# labels they hold. The truth is used for this picture only.

order = np.argsort(-judgement.wrong)
wrong = data.train.wrong[order]
n = np.arange(1, len(wrong) + 1)
figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
ax.plot(n, np.cumsum(wrong) / n, label="precision")
ax.plot(n, np.cumsum(wrong) / wrong.sum(), label="recall")
for point in ("sure", "look"):
    flagged = int(ng.find_label_issues(probs, y, point=point).sum())
    ax.axvline(flagged, color="grey", linestyle="--")
    ax.text(flagged, 0.02, f" {point}", color="grey")
ax.set(xlabel="labels looked at", ylim=(0, 1.03), xlim=(0, 700))
ax.legend(frameon=False)
plt.show()
