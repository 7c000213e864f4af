import pickle

import pytest

from noisegate.errors import InputError, UnknownNameError
from noisegate.studies.study import Cell, Smoke, Study, slug


def test_the_key_depends_on_every_setting(tiny):
    changed = [
        tiny.replace(data={"name": "circles"}),
        tiny.replace(method="ln"),
        tiny.replace(method="gce", params={"q": 0.3}),
        tiny.replace(method="gce", params={"q": 0.5}),
        tiny.replace(noise=None),
        tiny.replace(noise={"name": "symmetric", "rate": 0.3}),
        tiny.replace(network="mlp-5"),
        tiny.replace(weights="file"),
        tiny.replace(recipe={"epochs": 3, "batch_size": 16}),
        tiny.replace(validation=0.2),
        tiny.replace(noisy_test=True),
        tiny.replace(rows=10),
        tiny.replace(evidence=("test", "train")),
        tiny.replace(evaluate_every=2),
        tiny.replace(probes=({"name": "boundary"},)),
        tiny.replace(seed=1),
    ]
    keys = [settings.key for settings in (tiny, *changed)]
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_depend_on_how_the_settings_are_written(tiny):
    written_out = tiny.replace(recipe={"batch_size": 16, "epochs": 2, "lr": 1e-3})
    assert written_out.key == tiny.key
    # A change here means that all stored results would be done again: raise FORMAT if that is meant.
    assert pickle.loads(pickle.dumps(tiny)).key == tiny.key


def test_a_default_of_the_method_is_part_of_the_settings(tiny):
    full = tiny.replace(method="gce").full()
    assert full["method"]["q"] == 0.7
    assert full["recipe"]["lr"] == 1e-3


def test_candidates_are_the_grid(tiny):
    grid = {"temperature": (0.5, 1.0), "min_scale": (0.1, 0.5, 1.0)}
    cell = Cell(row="LN", column="c", settings=tiny.replace(method="ln"), search=grid)
    points = [(c.params["temperature"], c.params["min_scale"]) for c in cell.candidates()]
    assert points == [(0.5, 0.1), (0.5, 0.5), (0.5, 1.0), (1.0, 0.1), (1.0, 0.5), (1.0, 1.0)]


@pytest.mark.parametrize(
    ("label", "expected"),
    [("Het-τ-Σ_full", "het-tau-sigma-full"), ("Symmetric 40%", "symmetric-40"), ("α = 0.1", "0.1")],
)
def test_slugs(label, expected):
    assert slug(label) == expected


def test_a_part_of_a_study(study):
    part = study.only(rows=["ce"], columns=["symmetric-40"])
    assert [(c.row, c.column) for c in part] == [("CE", "Symmetric 40%")]
    assert len(study.only().cells) == 4
    with pytest.raises(UnknownNameError, match=r"unknown row of tiny 'cee'; did you mean 'ce'"):
        study.only(rows=["cee"])
    with pytest.raises(UnknownNameError, match="did you mean 'symmetric-20' or 'symmetric-40'"):
        study.only(columns=["symetric-20"])


def test_changes_reach_every_run(study):
    changed = study.with_changes({"recipe.epochs": 7, "network": "mlp-9", "noise.rate": 0.1, "data.n": 50})
    for cell in changed:
        assert cell.settings.recipe["epochs"] == 7
        assert cell.settings.network == "mlp-9"
        assert cell.settings.noise["rate"] == 0.1
        assert cell.settings.data["n"] == 50


def test_steps_replace_epochs(study):
    changed = study.with_changes({"recipe.steps": 7})
    assert changed.cells[0].settings.full()["recipe"]["epochs"] is None


def test_a_parameter_reaches_the_methods_that_have_it(study):
    changed = study.with_changes({"params.q": 0.2})
    assert [c.settings.params.get("q") for c in changed] == [None, None, 0.2, 0.2]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("recipe.epoch", "did you mean 'epochs'"),
        ("netwerk", "did you mean 'network'"),
        ("params.quux", "unknown setting 'params.quux'"),
        ("recipes.epochs", "recipe.epochs"),
    ],
)
def test_an_unknown_change_is_refused(study, name, hint):
    with pytest.raises(UnknownNameError, match=hint):
        study.with_changes({name: 1})


def test_a_bad_value_is_refused_before_anything_runs(study):
    with pytest.raises(InputError, match="epochs must be"):
        study.with_changes({"recipe.epochs": -1})
    with pytest.raises(InputError, match="at least one seed"):
        study.with_seeds(0)
    with pytest.raises(UnknownNameError, match="scale"):
        study.at_scale("huge")


def test_smoke_is_small(study):
    small = study.at_scale("smoke")
    for cell in small:
        assert cell.settings.data == {"name": "digits"}
        assert cell.settings.recipe["epochs"] == 3
        assert cell.settings.rows == 400
    assert small.seeds == 2
    assert study.at_scale("paper") is study


def test_smoke_keeps_the_stopping_rule_and_gives_natural_noise_a_stand_in(tiny):
    smoke = Smoke(noise={"name": "symmetric", "rate": 0.3})
    settings = tiny.replace(
        noise=None, validation=10_000, recipe={"epochs": 1000, "patience": 5, "keep": "best"}
    )
    small = smoke.apply(settings)
    assert small.noise == {"name": "symmetric", "rate": 0.3}
    assert small.validation == 0.1
    assert (small.recipe["patience"], small.recipe["keep"]) == (5, "best")
    assert smoke.apply(tiny).noise == tiny.noise


def test_places(study):
    assert study.rows == ["CE", "GCE"]
    assert study.columns == [("", "Symmetric 20%"), ("", "Symmetric 40%")]
    assert study.cell("GCE", "Symmetric 40%").settings.method == "gce"
    assert study.cell("GCE", "Symmetric 60%") is None
    assert [run.seed for run in study.runs(study.cells[0])] == [0, 1]


def test_a_study_is_iterable():
    assert list(Study(name="none", title="", reference="")) == []
