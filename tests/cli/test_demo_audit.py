"""The demo's audit stands beside the truth."""

import json

import noisegate as ng
from noisegate.auditing import stored
from noisegate.cli import demo_audit


def test_the_audit_stands_beside_the_truth(tmp_path, capsys):
    told = demo_audit.run(tmp_path, ng.Recipe(epochs=4, batch_size=64), "mlp-32", seed=1)
    audit = stored.read(tmp_path / "audit")
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=1)
    wrong = data.train.y != data.train.clean
    assert told["truth"]["errors"] == int(wrong.sum())
    flagged = audit.rows["row"].to_numpy()[audit.rows["is_label_issue"].to_numpy()]
    assert told["truth"]["found_by_look"] == int(wrong[flagged].sum())
    # Flags are far better than chance, also after four epochs.
    assert wrong[flagged].mean() > wrong.mean() + 0.2
    page = json.loads((tmp_path / "audit" / "report.json").read_text())
    for row in page["rows"][:20]:
        assert row["true_label"] == data.classes[data.train.clean[row["row"]]]
        assert row["given_label"] == data.classes[data.train.y[row["row"]]]
        assert len(row["pictures"]) == 1
    assert (tmp_path / "audit" / "suspects.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(sentence in printed for sentence in demo_audit.sentences(told))
    # Done again nothing is trained: the numbers are those of the folder.
    assert demo_audit.run(tmp_path, seed=1) == told
