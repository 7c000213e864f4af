"""`noisegate demo` hands the story to the study of that name."""

import pytest

from noisegate.cli import demo
from noisegate.errors import InputError
from noisegate.studies import papers


def test_the_command_does_the_two_columns_with_one_seed(call, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(demo, "run_study", lambda *a, **k: asked.append((a, k["device"])) or 4)
    audited = []
    monkeypatch.setattr(demo.demo_audit, "run", audited.append)
    assert call("demo", "--out", tmp_path)[0] == 4  # the study's
    assert audited == [tmp_path]
    (((name, choice, out), device),) = asked
    assert (name, choice.seeds, out, device) == ("demo", 1, tmp_path, "cpu")
    assert len(choice.apply(papers.get("demo")).cells) == 9


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        demo.run(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"
