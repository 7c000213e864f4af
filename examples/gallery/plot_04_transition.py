"""
Which classes are confused
==========================

A transition matrix says how often a true class is observed as another. We flip some digits to similar
ones and estimate the matrix from out-of-sample probabilities of a classifier that anyone could have.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import noisegate as ng

noise = ng.noise.Asymmetric(0.3, {7: 1, 2: 7, 5: 6, 6: 5, 3: 8})
data = ng.data.load("digits").corrupt(noise, seed=0)
x, y = data.train.x / 16, data.train.y
probs = cross_val_predict(LogisticRegression(max_iter=300), x, y, cv=3, method="predict_proba")

# %%
# ``judge`` gives every label a probability of being wrong, and with it the matrix and the share of wrong
# labels. The true ones are known here.

found = ng.quality.judge(probs, y)
true = data.noise_report()
print(f"wrong labels: {found.noise_rate:.1%} estimated, {true.rate:.1%} in truth")

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
for ax, matrix, title in ((axes[0], true.transition, "true"), (axes[1], found.transition, "estimated")):
    image = ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=title, xlabel="observed", xticks=range(10), yticks=range(10))
axes[0].set_ylabel("clean")
figure.colorbar(image, ax=axes, shrink=0.8)
plt.show()
