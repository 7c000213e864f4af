"""`noisegate apply`: the options reach what they name."""


def test_nothing_to_do_is_said(fails, tmp_path):
    assert "say what to write" in fails("apply", tmp_path)


def test_a_folder_without_an_audit_is_refused(fails, tmp_path):
    assert "there is no audit in" in fails("apply", tmp_path, "--out", tmp_path / "new.csv")
    assert "there is no audit in" in fails("apply", tmp_path, "--import", tmp_path / "new.csv")
