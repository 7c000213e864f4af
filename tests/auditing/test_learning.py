"""What answers teach: against simulated truth, the prior's limits and a general optimiser."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from noisegate.auditing import learning, stored, words
from noisegate.auditing.records import Choice
from noisegate.auditing.state import State, open_log
from noisegate.errors import InputError


def simulate(n, k, shift, seed):
    """Probabilities, classes and truth, where truth is odds times exp(shift + an effect of the pair)."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 2.0, n)
    given, suggested = rng.integers(0, k, n), rng.integers(0, k, n)
    effect = rng.normal(0, 0.8, (k, k))
    real = expit(logit(np.clip(p, 1e-4, 1 - 1e-4)) + shift + effect[given, suggested])
    return p, given, suggested, rng.random(n) < real


def test_intervals_hold_the_errors_that_are_left():
    held, closer = 0, 0
    for seed in range(40):
        p, given, suggested, wrong = simulate(3000, 4, shift=-0.8, seed=seed)
        answered = np.zeros(3000, bool)
        answered[np.argsort(-p)[:600]] = True
        learnt = learning.learn(p, given, suggested, answered, wrong)
        left = (wrong & ~answered).sum()
        held += learnt.errors_left.low <= left <= learnt.errors_left.high
        closer += abs(learnt.errors_left.value - left) < abs(p[~answered].sum() - left)
    assert held >= 36  # 95 % intervals: 38 expected
    assert closer >= 38


def test_the_precision_of_what_is_left_is_learnt():
    held = 0
    for seed in range(40):
        p, given, suggested, wrong = simulate(3000, 4, shift=-0.8, seed=seed)
        left = np.ones(3000, bool)
        left[np.argsort(-p)[:600:2]] = False
        learnt = learning.learn(
            p, given, suggested, ~left, wrong, lambda p, left=left: {"look": (p > 0.3) & left}
        )
        flagged = learnt.flags["look"]
        assert flagged.any()
        assert not flagged[~left].any()
        held += learnt.precision["look"].low <= wrong[flagged].mean() <= learnt.precision["look"].high
    assert held >= 36  # 95 % intervals: 38 expected


def test_ranking_improves_where_pairs_differ():
    from sklearn.metrics import average_precision_score

    better = 0
    for seed in range(10):
        p, given, suggested, wrong = simulate(4000, 3, shift=0.0, seed=seed)
        answered = np.zeros(4000, bool)
        answered[np.argsort(-p)[:1500]] = True
        learnt = learning.learn(p, given, suggested, answered, wrong)
        rest = ~answered
        better += average_precision_score(wrong[rest], learnt.p_wrong[rest]) > average_precision_score(
            wrong[rest], p[rest]
        )
    assert better == 10


def test_without_answers_nothing_changes():
    p, given, suggested, wrong = simulate(500, 3, 0.0, 0)
    learnt = learning.learn(p, given, suggested, np.zeros(500, bool), wrong, lambda p: {"all": p >= 0})
    np.testing.assert_array_equal(learnt.p_wrong, p)
    assert learnt.errors_left.value == pytest.approx(p.sum())
    assert learnt.precision["all"].value == pytest.approx(p.mean())
    assert learnt.precision["all"].low < p.mean() < learnt.precision["all"].high


def test_with_all_answers_the_truth_is_known():
    p, given, suggested, wrong = simulate(300, 3, 0.0, 1)
    left = np.zeros(300, bool)
    learnt = learning.learn(p, given, suggested, ~left, wrong, lambda p: {"look": (p > 0.5) & left})
    np.testing.assert_array_equal(learnt.p_wrong, wrong)
    assert learnt.errors_left == learning.Interval(0.0, 0.0, 0.0)
    assert learnt.precision["look"].to_dict() == {"value": None, "low": None, "high": None}


def test_the_mode_is_that_of_a_general_optimiser():
    p, given, suggested, wrong = simulate(400, 3, 0.5, 2)
    rows = np.arange(0, 400, 2)
    z = logit(np.clip(p, 1e-4, 1 - 1e-4))
    effects = learning._Effects(z, given, suggested, rows)
    x, y = effects.matrix(rows), wrong[rows].astype(float)
    theta, covariance = learning._fit(x, z[rows], y, effects.prior)

    def cost(t):
        eta = z[rows] + x @ t
        return np.logaddexp(0, eta).sum() - y @ eta + 0.5 * (effects.prior * t**2).sum()

    other = minimize(cost, np.zeros(len(theta)), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(theta, other.x, atol=1e-4)
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def test_contradicted_certainty_converges():
    p = np.where(np.arange(2000) % 2, 1.0, 0.0)
    learnt = learning.learn(p, np.zeros(2000, int), np.ones(2000, int), np.arange(2000) < 1000, p < 0.5)
    assert np.isfinite(learnt.p_wrong).all()


def decide_worst(audit, n, wrong):
    log = open_log(audit)
    rows = audit.rows.head(n)
    for row, suggested, given in zip(rows["row"], rows["suggested_label"], rows["given_label"], strict=True):
        accept = bool(wrong[row])
        choice = Choice(int(row), "accept" if accept else "keep", int(suggested if accept else given), 0)
        log.decide([choice], reviewer="ana", key=str(row))
    log.close()


def test_continue_takes_decided_rows_as_known(table_audit):
    folder, _ = table_audit(200)
    audit = stored.read(folder)
    with pytest.raises(InputError, match="nothing is decided"):
        learning.continue_audit(folder)
    first = audit.rows["row"].to_numpy()[:50]
    decide_worst(audit, 50, np.ones(200, bool))
    new, learnt = learning.continue_audit(folder)
    assert learnt.answered == 50
    assert sorted(new.info["decided"]["rows"]) == sorted(first)
    assert set(new.rows["row"].to_numpy()[-50:]) == set(first)
    assert not new.rows["is_label_issue"].to_numpy()[-50:].any()
    assert (np.diff(new.rows["p_wrong"].to_numpy()[:150]) <= 0).all()
    assert new.audit_id == audit.audit_id
    again, second = learning.continue_audit(folder)
    np.testing.assert_array_equal(again.rows["row"], new.rows["row"])
    assert second.errors_left.value == pytest.approx(learnt.errors_left.value)
    assert again.info["errors"] == pytest.approx(new.info["errors"])
    assert new.info["errors"]["value"] == pytest.approx(learnt.wrong + learnt.errors_left.value)
    assert new.info["curve"]["found"][-1] == pytest.approx(learnt.errors_left.value, rel=1e-4)


@pytest.mark.parametrize("confirmed", [True, False])
def test_rows_stay_sure_unless_the_answers_say_otherwise(table_audit, confirmed):
    """Rows the audit is all but certain of: their probability is beyond what learning can express."""
    folder, _ = table_audit(200)
    audit = stored.read(folder)
    rows = audit.rows.copy()
    rows["p_wrong"] = np.where(rows["is_sure"], np.float32(1 - 1e-6), rows["p_wrong"])
    rows["quality"] = 1 - rows["p_wrong"]
    stored.write(folder, replace(audit, rows=rows))
    sure = int(rows["is_sure"].sum())
    n = sure // 2
    wrong = np.full(200, confirmed)
    if confirmed:  # but one, so that the probabilities fall
        wrong[rows["row"].iat[0]] = False
    decide_worst(stored.read(folder), n, wrong)
    new, learnt = learning.continue_audit(folder)
    assert new.rows["is_sure"].sum() == (sure - n if confirmed else 0)
    assert (new.rows["is_sure"] <= new.rows["is_label_issue"]).all()
    assert new.info["decided"]["wrong"] == learnt.wrong == (n - 1 if confirmed else 0)
    assert new.info["precision"]["sure"]["n"] == new.rows["is_sure"].sum()
    summary = words.summary(new)
    assert f"Decided so far: {n} rows, {learnt.wrong} with a wrong label." in summary
    assert any("estimated to be left" in sentence for sentence in summary)


def test_when_all_is_decided_nothing_is_flagged(table_audit):
    folder, _ = table_audit(60)
    rows = stored.read(folder).rows
    wrong = np.arange(60) % 3 == 0
    found = int((wrong[rows["row"]] & (rows["suggested_label"] != rows["given_label"])).sum())
    decide_worst(stored.read(folder), 60, wrong)
    new, learnt = learning.continue_audit(folder)
    assert learnt.wrong == found
    assert new.info["precision"]["look"] == {"n": 0, "value": None, "low": None, "high": None}
    assert new.info["errors"] == {"value": found, "low": found, "high": found}
    summary = words.summary(stored.read(folder))
    assert "No row is flagged for a look." in summary
    assert f"Decided so far: 60 rows, {found} with a wrong label." in summary
    assert not any("estimated to be left" in sentence for sentence in summary)


def test_state_and_audit_agree_on_rows(table_audit):
    folder, _ = table_audit(80)
    audit = stored.read(folder)
    decide_worst(audit, 20, np.zeros(80, bool))
    log = open_log(audit)
    learnt = learning.learn_from(audit, State(log, 80))
    log.close()
    assert (learnt.answered, learnt.wrong) == (20, 0)
    assert learnt.errors_left.value < audit.rows["p_wrong"].to_numpy()[20:].sum()
