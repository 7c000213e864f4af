"""
Find the wrong labels
=====================

We mislabel a fifth of scikit-learn's digits, fit once, and look at the twenty labels that the
classifier believes least. Nothing in the fit knows which labels are wrong.
"""

import matplotlib.pyplot as plt

import noisegate as ng

data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.2, include_self=False), seed=0)
clf = ng.NoisyLabelClassifier(random_state=0).fit(data.train.x, data.train.y)
issues = clf.label_issues_
print(issues.head())

# %%
# The true labels are known here, because we made the mistakes ourselves. They only serve to count how
# many of the flagged labels really are wrong, and how many wrong ones were missed.

flagged = issues.loc[issues["is_label_issue"], "row"]
wrong = data.train.y != data.train.clean
print(f"{len(flagged)} labels flagged, {wrong[flagged].sum()} of them wrong; {wrong.sum()} are wrong in all")

# %%
# The twenty worst, each with the label it was given, the suggested one, and a mark where the given
# label was right after all.

figure, axes = plt.subplots(4, 5, figsize=(7, 6.4), layout="constrained")
for ax, (_, issue) in zip(axes.flat, issues.head(20).iterrows(), strict=True):
    row = issue["row"]
    ax.imshow(data.train.x[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"given {issue['given_label']}, rather {issue['suggested_label']}", fontsize=9)
    ax.set_axis_off()
    if not wrong[row]:
        ax.text(0, 7, "was right", color="tab:red", fontsize=9)
figure.suptitle("The twenty most suspicious labels")
plt.show()
