"""
Several annotators
==================

Five people label the same rows: three are careful, one guesses, and one mixes up two classes. Their
answers together say who is who, and what the labels are.
"""

import matplotlib.pyplot as plt
import numpy as np

import noisegate as ng

rng = np.random.default_rng(0)
names = np.array(["cat", "dog", "fox"])
truth = rng.integers(3, size=400)
careful = np.full((3, 3), 0.08) + 0.76 * np.eye(3)
guessing = np.full((3, 3), 1 / 3)
mixing = np.array([[0.9, 0.05, 0.05], [0.05, 0.25, 0.7], [0.05, 0.05, 0.9]])
people = [careful, careful, careful, guessing, mixing]
answers = np.array([[rng.choice(3, p=matrix[label]) for matrix in people] for label in truth])
answers[rng.random(answers.shape) < 0.3] = -1  # nobody answers everything

# %%
# ``consensus`` knows none of this. A missing answer is -1 where labels are numbers.

found = ng.consensus(answers)
majority = np.array([np.bincount(row[row >= 0], minlength=3).argmax() for row in answers])
print(f"majority vote: {(majority == truth).mean():.1%} right")
print(f"consensus:     {(found.labels == truth).mean():.1%} right")
print("accuracy of each person:", found.accuracy.round(2))

figure, axes = plt.subplots(1, 5, figsize=(10, 2.6), layout="constrained", sharey=True)
for ax, matrix, accuracy, person in zip(axes, found.confusion, found.accuracy, "ABCDE", strict=True):
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(3, 3):
        ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=8)
    ax.set_title(f"{person}: {accuracy:.0%}")
    ax.set(xticks=range(3), xticklabels=names, yticks=range(3), yticklabels=names)
axes[0].set_ylabel("true class")
plt.show()
