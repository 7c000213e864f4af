from dataclasses import dataclass

import pytest

import noisegate as ng
from noisegate.errors import UnknownNameError
from noisegate.methods import METHODS, Direct, Method, Phase, register


@pytest.fixture
def two_stage():
    """The method of CONTRIBUTING.md: one file, one class, one decorator."""

    @register("two-stage", "cross-entropy, then Logistic-Normal on what it agrees with", "nobody's paper")
    @dataclass
    class TwoStage(Method):
        share: float = 0.5

        def phases(self, job):
            first = ng.CrossEntropy(job.n_classes)
            net = job.network(first)
            yield Phase(Direct(net, first), job.recipe, name="warm-up")
            given = job.predict(net, first).gather(1, job.train.y[:, None]).squeeze(1)
            rows = given.argsort(descending=True)[: int(self.share * len(given))]
            second = ng.LogisticNormal(job.n_classes)
            net = job.network(second)
            yield Phase(Direct(net, second), job.recipe, rows=rows)
            return ng.Fitted(net, second, agreement=given)

    yield TwoStage
    del METHODS["two-stage"]


def test_a_new_method_is_one_class_and_works_everywhere(two_stage, tmp_path):
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.3), seed=0)
    clf = ng.NoisyLabelClassifier(method="two-stage", recipe={"epochs": 10, "batch_size": 84}, random_state=0)
    clf.set_params(method__share=0.7).fit(data.train.x, data.train.y)
    assert clf.score(data.test.x, data.test.y) > 0.85
    assert clf.fitted_.extras["agreement"].shape == (len(data.train),)
    assert len(clf.fitted_.history) == 2
    clf.save(tmp_path)
    back = ng.NoisyLabelClassifier.load(tmp_path)
    assert back.get_params()["method__share"] == 0.7
    assert (back.predict(data.test.x) == clf.predict(data.test.x)).all()


def test_parameters_of_a_registered_method_are_checked(two_stage):
    assert METHODS["two-stage"].defaults == {"share": 0.5}
    assert ng.methods.get("two-stage", share=0.2).share == 0.2
    with pytest.raises(
        UnknownNameError, match="parameter of method 'two-stage' 'sahre'; did you mean 'share'"
    ):
        ng.methods.get("two-stage", sahre=0.2)


def test_every_file_of_the_folder_is_imported():
    assert {"ce", "ln"} <= set(METHODS)
