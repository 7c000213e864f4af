"""`noisegate review`: what can be wrong before a page is served."""

import socket


def test_a_folder_without_an_audit_is_refused(fails, tmp_path):
    assert "there is no audit in" in fails("review", tmp_path, "--no-browser")


def test_a_port_in_use_is_named(fails, tmp_path):
    import numpy as np
    import pandas as pd

    from noisegate.auditing import stored

    rows = pd.DataFrame({"row": np.arange(3), "id": list("abc")})
    for name, kind in stored.COLUMNS.items():
        if name not in rows:
            rows[name] = np.zeros(3, kind)
    info = {
        "audit_id": "a" * 12,
        "source": stored.source_of("memory", None, 3),
        "classes": ["x", "y"],
        "label_values": [0, 1],
    }
    stored.write(tmp_path, stored.StoredAudit(info, rows))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another with --port" in fails(
            "review", tmp_path, "--no-browser", "--port", taken.getsockname()[1]
        )
