"""
Probabilities that mean something
=================================

A classifier that was trained on wrong labels is unsure of everything, or sure of the wrong things.
``calibrate`` makes its confidence mean something again, for the *given* labels that you have.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.2), seed=0)
x, y = data.train.x, data.train.y
forest = RandomForestClassifier(100, random_state=0)
probs = cross_val_predict(forest, x, y, cv=3, method="predict_proba")
calibrated = ng.calibrate(probs, y)

# %%
# How often the predicted label is the given one, for predictions of about the same confidence.

figure, ax = plt.subplots(figsize=(4.8, 4.4), layout="constrained")
ax.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
for name, values in (("forest", probs), ("calibrated", calibrated)):
    confidence, hit = values.max(1), values.argmax(1) == y
    bins = np.array_split(np.argsort(confidence), 10)
    ax.plot([confidence[b].mean() for b in bins], [hit[b].mean() for b in bins], "o-", label=name)
    print(f"{name:11} calibration error {ng.evaluation.ece(values, y):.3f}")
ax.set(xlabel="confidence", ylabel="share of given labels predicted", xlim=(0, 1), ylim=(0, 1))
ax.legend(frameon=False)
plt.show()
