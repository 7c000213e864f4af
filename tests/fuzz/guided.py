"""Coverage-guided fuzzing of the readers that are written in Python: `python tests/fuzz/guided.py [RUNS]`.

Needs atheris, which has no wheels for every system; without it the script says so and ends well. Each
reader has a process and starts from a sound file. A reader fails if it raises an error that is not
noisegate's, takes more than five seconds for a file, or two gigabytes; libFuzzer prints the file.
"""

from __future__ import annotations

import gzip
import io
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

RUNS = 10_000


def _seeds() -> dict[str, bytes]:
    """A sound file for each reader."""
    import numpy as np
    from scipy.io import savemat

    mat, packed = io.BytesIO(), io.BytesIO()
    arrays = {"X": np.arange(48, dtype=np.uint8).reshape(4, 4, 3, 1), "y": np.array([[1.0]])}
    savemat(mat, arrays)
    savemat(packed, arrays, do_compression=True)
    idx = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 2, 2)) + bytes(range(12))
    rows = {b"data": np.arange(60, dtype=np.uint8).reshape(5, 12), b"labels": [0, 1, 2, 1, 0]}
    return {
        "pickle": pickle.dumps(rows, protocol=2),
        "mat": mat.getvalue(),
        "packed.mat": packed.getvalue(),
        "idx": idx,
        "idx.gz": gzip.compress(idx, mtime=0),
        "labels.txt": _labels(),
        "json": b'{"format": 1, "weights": "w", "network": {"network": "mlp-8"}, "classes": ["a", "b"]}',
    }


def _labels() -> bytes:
    import numpy as np

    from noisegate.noise.labels import save_labels

    with tempfile.TemporaryDirectory() as folder:
        save_labels(Path(folder) / "sound.txt", np.arange(9) % 3, clean=np.zeros(9, np.int64))
        return (Path(folder) / "sound.txt").read_bytes()


def _readers() -> dict[str, Callable[[Path], object]]:
    with atheris.instrument_imports(include=["noisegate"]):
        from noisegate._io.files import read_json
        from noisegate.data.matlab import read_arrays
        from noisegate.data.named.idx import read_idx
        from noisegate.data.pickles import read_pickle
        from noisegate.noise.labels import load_labels
    return {
        "pickle": read_pickle,
        "mat": lambda path: read_arrays(path, ("X", "y")),
        "packed.mat": lambda path: read_arrays(path, ("X", "y")),
        "idx": read_idx,
        "idx.gz": read_idx,
        "labels.txt": load_labels,
        "json": read_json,
    }


def fuzz(name: str, folder: Path, runs: int) -> None:
    """Fuzz one reader in this process, which libFuzzer ends."""
    read, path = _readers()[name], folder / f"file.{name}"
    from noisegate.errors import NoisegateError

    def one(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(path)
        except NoisegateError as error:
            message = str(error).replace(str(path), "")
            if len(message) > 300 or any(ord(c) < 32 and c != "\n" for c in message):
                raise ValueError(f"an unprintable or long message: {message!r}") from None

    limits = [f"-runs={runs}", "-timeout=5", "-rss_limit_mb=2048", "-max_len=4096", "-seed=1"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(folder / "corpus")], one)
    atheris.Fuzz()


def main(runs: int) -> int:
    """Fuzz every reader in a process of its own; the number of readers that failed."""
    failed = 0
    for name, seed in _seeds().items():
        with tempfile.TemporaryDirectory(prefix="noisegate-fuzz-") as folder:
            (Path(folder) / "corpus").mkdir()
            (Path(folder) / "corpus" / "sound").write_bytes(seed)
            line = [sys.executable, __file__, str(runs), name, folder]
            done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
            said = done.stderr.strip().splitlines()
            print(
                f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}, {said[-1] if said else ''}",
                flush=True,
            )
            if done.returncode:
                failed += 1
                print("\n".join(said[-40:]))
    return failed


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    if atheris is None:
        print("atheris is not installed (pip install atheris), so there is no coverage-guided fuzzing")
    elif len(sys.argv) > 2:
        fuzz(sys.argv[2], Path(sys.argv[3]), wanted)
    else:
        sys.exit(main(wanted))
