import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from noisegate.methods.auto.candidates import TREES, grow


@pytest.mark.parametrize(
    ("name", "kind"), [("forest", RandomForestClassifier), ("extra trees", ExtraTreesClassifier)]
)
def test_trees_are_those_of_the_forests_of_scikit_learn(name, kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 7)).astype(np.float32)
    y, weight = rng.integers(0, 3, 60) * 2, rng.uniform(0.2, 1, 60)
    forest = kind(TREES, min_samples_leaf=3, bootstrap=True, max_samples=60, random_state=5).fit(x, y, weight)
    grown = grow(x, y, weight, f"{name}:3", 3, 5)
    assert len(grown) == TREES
    for (tree, drawn), expected, rows in zip(
        grown, forest.estimators_, forest.estimators_samples_, strict=True
    ):
        np.testing.assert_array_equal(drawn, rows)
        for part in ("feature", "threshold", "children_left", "children_right", "value"):
            np.testing.assert_array_equal(getattr(tree, part), getattr(expected.tree_, part))
