"""Ensembles: a network whose outputs are the log of the mean probability of its members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.networks.bag import Bag
from noisegate.networks.forest import Forest
from noisegate.networks.projection import Projection
from noisegate.networks.registry import build
from noisegate.networks.shallow import LandmarkKernel, Linear

Factory = Callable[[tuple[int, ...], int], nn.Module]
#: Kinds of members that their `spec` describes fully. Other members are networks by name or a
#: user's own.
MEMBERS: dict[str, type[Any]] = {kind.kind: kind for kind in (Linear, LandmarkKernel, Bag, Forest)}


class Ensemble(nn.Module):
    """The weighted mean of several classifiers' probabilities, as logits for cross-entropy.

        f(x) = sharpness * log sum_h w_h softmax(b_h f_h(x))

    A member is any module from inputs to logits `(B, K)`, or to those of several heads `(B, H, K)`.
    Each head h has a weight w_h and a sharpness b_h, an inverse temperature. At `sharpness` 1
    softmax(f) is the mean itself.

    Parameters
    ----------
    members : sequence of nn.Module
        The classifiers.
    heads : sequence of int
        Number of heads of each member.
    names : sequence of (str or None), default=None
        For each member that is not one of `MEMBERS`: the name of its network, or None for a user's
        own. None: no names.
    front : Projection, default=None
        Applied to the inputs before all members. None: nothing.

    Attributes
    ----------
    weights, sharpnesses : float tensors (sum of heads,)
        Weights sum to one; equal by default.
    sharpness : float tensor ()

    Shapes
    ------
    (B, ...) -> (B, K)

    Examples
    --------
    >>> import torch
    >>> one, two = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    >>> x = torch.ones(4, 3)
    >>> mean = (one(x).softmax(1) + two(x).softmax(1)) / 2
    >>> torch.allclose(Ensemble([one, two], [1, 1])(x).softmax(1), mean)
    True
    """

    weights: Tensor
    sharpnesses: Tensor
    sharpness: Tensor

    def __init__(
        self,
        members: Sequence[nn.Module],
        heads: Sequence[int],
        names: Sequence[str | None] | None = None,
        front: Projection | None = None,
    ) -> None:
        super().__init__()
        self.front = front
        self.members = nn.ModuleList(members)
        self.heads = tuple(int(n) for n in heads)
        self.names = tuple(names) if names is not None else (None,) * len(self.heads)
        if len(self.heads) != len(self.members) or len(self.names) != len(self.members) or not self.heads:
            raise InputError(
                f"an ensemble needs at least one member, and one number of heads and one name for each; got "
                f"{len(self.members)} members, {len(self.heads)} numbers of heads, {len(self.names)} names"
            )
        total = sum(self.heads)
        self.register_buffer("weights", torch.full((total,), 1.0 / total))
        self.register_buffer("sharpnesses", torch.ones(total))
        self.register_buffer("sharpness", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        mixture: Tensor | None = None
        x = x if self.front is None else self.front(x)
        place = 0
        for member, heads in zip(self.members, self.heads, strict=True):
            logits = member(x)
            logits = logits.unsqueeze(1) if logits.dim() == 2 else logits
            part = slice(place, place + heads)
            place += heads
            scaled = logits * self.sharpnesses[part, None]
            terms = torch.log_softmax(scaled, 2) + self.weights[part].log()[:, None]
            term = torch.logsumexp(terms, 1)
            mixture = term if mixture is None else torch.logaddexp(mixture, term)
        assert mixture is not None  # the constructor checks that there is a member
        return self.sharpness * mixture

    def spec(self) -> dict[str, Any]:
        """Describe the ensemble as plain data, for `from_spec`."""
        return {
            "kind": "ensemble",
            "members": [
                _described(member, name) for member, name in zip(self.members, self.names, strict=True)
            ],
            "heads": list(self.heads),
            "front": None if self.front is None else self.front.spec(),
        }


def _described(member: Any, name: str | None) -> dict[str, Any]:
    own = type(member) in MEMBERS.values()
    return member.spec() if own else {"kind": "network", "name": name}


def from_spec(
    spec: str | Mapping[str, Any] | None,
    input_shape: tuple[int, ...],
    n_outputs: int,
    factory: Factory | None = None,
) -> nn.Module:
    """Build the network of a stored model, without loading its weights.

    Parameters
    ----------
    spec : str, mapping or None
        A network's name, the result of `Ensemble.spec`, or None for a user's own network.
    input_shape : tuple of int
    n_outputs : int
    factory : function (input_shape, n_outputs) -> nn.Module, default=None
        Builds the user's own network, alone or as a member of an ensemble. None: there is none.
    """
    if isinstance(spec, Mapping):
        members = [_member(each, input_shape, n_outputs, factory) for each in spec["members"]]
        names = [each.get("name") for each in spec["members"]]
        front = Projection(**spec["front"]) if spec["front"] else None
        return Ensemble(members, spec["heads"], names, front)
    if factory is not None:
        return factory(input_shape, n_outputs)
    if spec is None:
        raise InputError("the model has a network of the user's own: hand its factory over as network=")
    return build(spec, input_shape, n_outputs)


def _member(
    spec: Mapping[str, Any], shape: tuple[int, ...], n_outputs: int, factory: Factory | None
) -> nn.Module:
    if spec["kind"] == "network":
        return from_spec(spec["name"], shape, n_outputs, None if spec["name"] else factory)
    sizes = {name: value for name, value in spec.items() if name != "kind"}
    if spec["kind"] not in MEMBERS:
        raise InputError(
            f"unknown kind of ensemble member {spec['kind']!r}; expected {', '.join(MEMBERS)} or network"
        )
    return MEMBERS[spec["kind"]](**sizes)


def needs_factory(spec: str | Mapping[str, Any] | None) -> bool:
    """Whether a stored model contains a user's own network, whose code is not stored."""
    if isinstance(spec, Mapping):
        return any(each["kind"] == "network" and each["name"] is None for each in spec["members"])
    return spec is None


def least_layers(spec: str | Mapping[str, Any] | None) -> int:
    """A lower limit of the number of layers that a description asks for, without building them.

    >>> least_layers("mlp-8-8-8"), least_layers("wrn-28-2"), least_layers("lenet5")
    (3, 28, 1)
    """
    if isinstance(spec, Mapping):
        return sum(least_layers(each.get("name")) for each in spec["members"])
    kind, *numbers = str(spec).split("-")
    if kind == "wrn" and numbers and numbers[0].isdecimal():
        return int(numbers[0])
    return max(1, len(numbers)) if kind == "mlp" else 1


#: Kinds of members as people call them.
_WORDS = {
    "linear": "linear model",
    "kernel": "kernel machine",
    "bag": "bag of networks",
    "network": "network of the user's own",
}


def _counted(n: int, name: str) -> str:
    head, *rest = name.split(" of ")
    return f"a {name}" if n == 1 else " of ".join([f"{n} {head}s", *rest])


def title(spec: str | Mapping[str, Any] | None) -> str:
    """Name of a stored network in reports.

    >>> title({"members": [{"kind": "linear"}, {"kind": "forest"}, {"kind": "forest"}], "heads": [3, 1, 1]})
    'ensemble of a linear model, 2 forests'
    """
    if not isinstance(spec, Mapping):
        return spec or "the user's own"
    counts: dict[str, int] = {}
    for each in spec["members"]:
        name = each.get("name") or _WORDS.get(each["kind"], each["kind"])
        counts[name] = counts.get(name, 0) + 1
    return "ensemble of " + ", ".join(_counted(n, name) for name, n in counts.items())
