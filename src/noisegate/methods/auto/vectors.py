"""`auto` for vectors: linear models, kernels, trees and a bag of networks, stacked."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import torch

from noisegate.fitted import Fitted
from noisegate.methods.auto.bagging import DROPOUT, HIDDEN, BagModule, Fronted, bag_recipe, pairs_left_out
from noisegate.methods.auto.candidates import (
    KERNEL_PENALTIES,
    KERNEL_SHARPNESS,
    LANDMARKS,
    Candidate,
    fit_forest,
    fit_kernel,
    fit_linear,
    kernel_features,
    kernel_steps,
    thinned,
    views,
)
from noisegate.methods.auto.cleaning import MOST_ROWS, does_harm, gentle_weights, label_weights
from noisegate.methods.auto.judging import judged
from noisegate.methods.auto.rows import TrainingRows, training_rows
from noisegate.methods.auto.stacking import Stack, best_head, clean_sharpness, ensemble, stack
from noisegate.networks.bag import Bag
from noisegate.networks.projection import Projection
from noisegate.networks.shallow import Scaled
from noisegate.objectives import CrossEntropy
from noisegate.training.job import Job
from noisegate.training.phase import History, Phase, Phases
from noisegate.training.recipe import Recipe, auto_recipe

Candidates = Generator[Phase, History, list[Candidate]]
#: Inputs of more features are projected on that many directions first.
WIDE, DIRECTIONS = 2000, 500
#: Kinds of forests, and the least number of rows in their leaves: under noise a leaf of one row is a coin.
FORESTS = {"forest": 3, "extra trees": 3}


class Library:
    """The candidates for vectors, and what they need to be fitted again on other weights.

    Parameters
    ----------
    job : Job
    folds : int
    effort : int
        Bags are trained on that many repeats of the folds, and beyond 1 on both views.
    """

    def __init__(self, job: Job, folds: int, effort: int) -> None:
        self.job, self.effort = job, effort
        self.prepared = job.prepared(torch.nn.Identity(), None, job.n_classes)
        self.front = self._front()
        self.rows = training_rows(job, self.prepared, folds, effort, self.front)
        deviation = self.prepared.std if self.front is None else self.front.deviation
        self.views = views(self.rows, deviation)
        self.landmarks = torch.randperm(len(self.rows), device=self.rows.x.device)[: LANDMARKS * effort]
        self.seed = int(torch.randint(2**31 - 1, ()))

    def _front(self) -> Projection | None:
        """Wide inputs, such as counts of words, on the principal directions of their own scale."""
        dims = self.job.input_shape[0]
        if dims <= WIDE:
            return None
        prepared, std = self.prepared, self.prepared.std.float()
        front = Projection(dims, DIRECTIONS).to(self.job.device)
        scale = std / std.square().sum().sqrt().clamp_min(1e-30)
        front.fit(lambda: map(prepared.prepare, self.job.train.inputs(1024)), scale, len(self.job.train))
        return front

    def first(self) -> Candidates:
        """Fit all: kernels and networks on the scale that suits linear models best, or on both."""
        rows = self.rows
        found = [fit_linear(rows, view, f"linear:{name}") for name, view in self.views.items()]
        best, others = self._ranked_views(found)
        for name in (best, *others):
            found += [
                self._kernel(rows, name, number) for number in range(len(thinned(KERNEL_SHARPNESS, rows)))
            ]
        for name in (best, *others) if self.effort > 1 else (best,):
            found.append((yield from self._bag(rows, name)))
        found += [self._forest(rows, kind, leaf) for kind, leaf in FORESTS.items()]
        return found

    def again(self, rows: TrainingRows, first: Stack) -> Candidates:
        """Fit the heads of a stack on other weights."""
        found: list[Candidate] = []
        for candidate, heads, _ in first.parts:
            kind, _, rest = candidate.family.partition(":")
            if kind == "linear":
                found.append(fit_linear(rows, self.views[rest], candidate.family, heads.tolist()))
            elif kind == "kernel":
                name, _, number = rest.partition(":")
                found.append(self._kernel(rows, name, int(number), heads.tolist()))
            elif kind == "bag":
                found.append((yield from self._bag(rows, rest)))
            else:
                found.append(self._forest(rows, kind, int(rest)))
        return found

    def cleaning_does_harm(self, found: Sequence[Candidate]) -> bool:
        """Whether weighing labels does harm, by the best of the kernel models that were found."""
        kernels = [each for each in found if each.family.startswith("kernel")]
        place, head = best_head(kernels, self.rows.y, self.rows.weight)
        _, name, number = kernels[place].family.split(":")
        rows = self.rows
        if len(rows) > MOST_ROWS:
            rows = rows.some(torch.randperm(len(rows), device=rows.x.device)[:MOST_ROWS])
        landmarks = torch.randperm(len(rows), device=rows.x.device)[:LANDMARKS]
        features, *_ = kernel_features(rows, self.views[name], KERNEL_SHARPNESS[int(number)], landmarks)
        penalty = thinned(KERNEL_PENALTIES, self.rows)[head]
        return does_harm(features, rows.y, rows.n_classes, rows.weight, penalty, kernel_steps(rows))

    def _ranked_views(self, linear: Sequence[Candidate]) -> tuple[str, list[str]]:
        """The scale that linear models do best on, and others about as good; all of them for more effort."""
        chosen = stack(linear, self.rows.y, self.rows.weight).parts
        names = dict(zip((each.family for each in linear), self.views, strict=True))
        ranked = [names[candidate.family] for candidate, _, _ in chosen]
        if self.effort > 1:
            ranked += [name for name in self.views if name not in ranked]
        return ranked[0], ranked[1:]

    def _kernel(
        self, rows: TrainingRows, name: str, number: int, strengths: Sequence[int] | None = None
    ) -> Candidate:
        sharpness, family = KERNEL_SHARPNESS[number], f"kernel:{name}:{number}"
        return fit_kernel(rows, self.views[name], family, sharpness, self.landmarks, strengths)

    def _forest(self, rows: TrainingRows, kind: str, leaf: int) -> Candidate:
        return fit_forest(rows, f"{kind}:{leaf}", leaf, self.seed)

    def _bag(self, rows: TrainingRows, name: str) -> Generator[Phase, History, Candidate]:
        members = pairs_left_out(rows).shape[1]
        bag = Bag(rows.x.shape[1], members, HIDDEN, rows.n_classes, DROPOUT)
        view: Scaled = self.views[name]
        bag.view.load_state_dict(view.state_dict())
        bag.view.scale.div_(view(rows.x).std().clamp_min(1e-12).to(bag.view.scale.device))
        module = BagModule(self.job.prepared(Fronted(bag, self.front), None, rows.n_classes), rows)
        yield Phase(module, self._recipe(), keep="last", name="bag")
        return module.candidate(f"bag:{name}")

    def _recipe(self) -> Recipe:
        """The bag's own recipe, with those fields of the job's that the user has changed."""
        return bag_recipe(len(self.rows)).replace(**changed_fields(self.job))


def changed_fields(job: Job) -> dict[str, Any]:
    """The fields in which a job's recipe is not the automatic one for its data: those that a user has set."""
    automatic = auto_recipe(len(job.train), job.input_shape, n_classes=job.n_classes).to_dict()
    fields = {name: value for name, value in job.recipe.to_dict().items() if value != automatic.get(name)}
    if "steps" in fields or "epochs" in fields:
        fields |= {"steps": job.recipe.steps, "epochs": job.recipe.epochs}
    return fields | {"keep": "last", "patience": None, "ema": 0.0}


def phases(job: Job, folds: int, effort: int) -> Phases:
    """Candidates on the given labels, the best of them again on weighed labels, and the mean of both."""
    library = Library(job, folds, effort)
    rows = library.rows
    found = yield from library.first()
    first = stack(found, rows.y, rows.weight)
    weigh = gentle_weights if library.cleaning_does_harm(found) else label_weights
    weights = weigh(first.probs, rows.y).to(rows.weight)
    second = stack((yield from library.again(rows.reweighted(weights), first)), rows.y, rows.weight)
    network = ensemble([first, second], library.front).to(job.device)
    held_out = (first.probs + second.probs) / 2
    judgement = judged(held_out, rows.y)
    right = judgement["quality"].to(rows.weight)
    network.sharpness.fill_(clean_sharpness(held_out, rows.y, rows.weight * right))
    predicts = job.prepared(network, network.spec(), job.n_classes)
    return Fitted(predicts, CrossEntropy(job.n_classes), **judgement)
