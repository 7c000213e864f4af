"""The contract of methods, over every class that noisegate defines; and what a broken one is told."""

import inspect
from dataclasses import dataclass

import pytest
import torch

import noisegate as ng
from noisegate.methods import METHODS, Method
from noisegate.methods.direct import Direct
from noisegate.testing import METHOD_CHECKS, check_method
from noisegate.training.phase import Phase

#: Fewer samples than the papers' 1000, so that the tests stay quick.
QUICK = {name: {"n_samples": 20, "n_samples_eval": 20} for name in ("het", "het-tau", "het-full")}


@pytest.mark.parametrize("check", METHOD_CHECKS)
@pytest.mark.parametrize("name", sorted(METHODS.own()))
def test_every_method_keeps_its_promises(name, check):
    METHOD_CHECKS[check](lambda: ng.methods.get(name, **QUICK.get(name, {})))


def test_every_method_class_of_noisegate_has_a_name():
    named = {type(ng.methods.get(name)) for name in METHODS.own()}
    # A method outside of the package `methods` is a part of something else: the audit's detector.
    own = {
        kind
        for kind in Method.classes.own().values()
        if not inspect.isabstract(kind) and kind.__module__.startswith("noisegate.methods.")
    }
    # Common ground of others, which cannot be made by itself.
    bases = {kind for kind in own if any(kind in other.__mro__[1:] for other in own)}
    assert own - bases <= named


def broken(promise):
    made = []

    class Slips(Direct):
        def forward(self, batch):
            loss = super().forward(batch)
            return loss * (1 + 0 * loss.item()) if promise == "capture" else loss

    @dataclass
    class Broken(Method):
        rate: float = 0.1

        def settings(self):
            return super().settings() | ({"rate": 0.2 + self.rate} if promise == "settings" else {})

        def phases(self, job):
            objective = ng.CrossEntropy(job.n_classes)
            network = job.network(objective)
            module = Slips(network, objective)
            if promise == "gradients":
                module.unused = torch.nn.Linear(2, 2)
            yield Phase(module, job.recipe)
            made.append(1)
            drawn = torch.tensor(float(len(made))) if promise == "seeds" else torch.zeros(())
            return ng.Fitted(network, objective, drawn=drawn)

    return Broken


@pytest.mark.parametrize("promise", ["settings", "seeds", "gradients", "capture"])
def test_the_broken_promise_is_named(promise):
    try:
        with pytest.raises(AssertionError, match=f"^Broken: {promise}: "):
            check_method(broken(promise))
    finally:
        Method.classes.pop("Broken", None)
