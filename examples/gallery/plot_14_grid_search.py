"""
Search a method's parameters on noisy labels
============================================

Nobody has clean labels to choose with. Cross-validation on the noisy ones ranks parameters all the same,
as long as mistakes are not systematic: here are both scores, for GCE's q.
"""

import matplotlib.pyplot as plt
from sklearn.model_selection import GridSearchCV

import noisegate as ng

data = ng.data.load("moons", n=400).corrupt(ng.noise.Symmetric(0.5), seed=0)
values = [0.05, 0.3, 0.6, 0.9]
model = ng.NoisyLabelClassifier(
    "gce", network="mlp-64", recipe={"epochs": 30, "lr": 3e-3}, device="cpu", random_state=0
)
search = GridSearchCV(model, {"method__q": values}, cv=3)
search.fit(data.train.x, data.train.y)
noisy = search.cv_results_["mean_test_score"]

# %%
# The noisy score is lower, because a quarter of the labels it is measured against are wrong.

clean = []
for q in values:
    model.set_params(method__q=q).fit(data.train.x, data.train.y)
    clean.append(model.score(data.test.x, data.test.y))
    print(f"q = {q:<4}: {noisy[values.index(q)]:.3f} on held-out noisy labels, {clean[-1]:.3f} on clean ones")

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(values, clean, "o-", label="clean test labels")
ax.plot(values, noisy, "o-", label="held-out noisy labels")
ax.axvline(search.best_params_["method__q"], color="grey", linestyle="--", label="chosen")
ax.set(xlabel="q", ylabel="accuracy")
ax.legend(frameon=False)
plt.show()
