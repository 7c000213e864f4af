"""Reading downloaded pickles without running them.

A pickle is a program. The reader here lets it build dicts, lists, strings, bytes and numbers, and numpy
arrays; for these it does not even call numpy's own constructors, but takes their arguments and builds the
array itself from checked values. Every other name in the pickle stops the reading before anything runs.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import DamagedFileError, InputError, MissingDataError

_TORCH_MAGIC = 0x1950A86A20F9469CFC6C


class _Stand:
    """What the pickle gets in place of a name: it can be called, and nothing about it can be changed."""

    __slots__ = ("_function",)
    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("the file tries to change the reader")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("the file tries to change the reader")


class _Dtype:
    """Arguments of a pickled `numpy.dtype`."""

    def __init__(self, kind: Any, *ignored: Any) -> None:
        self.kind, self.order = _text(kind), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])
        if state[2] is not None or state[3] or state[4]:
            raise pickle.UnpicklingError("the file holds an array of records")

    def build(self) -> np.dtype[Any]:
        dtype = np.dtype(self.kind)
        if dtype.kind not in "biufSU":
            raise pickle.UnpicklingError(f"the file holds an array of {dtype}, not of numbers or text")
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """Arguments of a pickled `numpy.ndarray`."""

    value: npt.NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = _build(raw, dtype, shape, "F" if fortran else "C")


def _text(value: Any) -> str:
    text = value.decode("latin1") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise pickle.UnpicklingError(f"expected text, found {type(value).__name__}")
    return text


def _build(raw: Any, dtype: Any, shape: Any, order: Any) -> npt.NDArray[Any]:
    if not (isinstance(raw, bytes | bytearray) and isinstance(dtype, _Dtype) and isinstance(shape, tuple)):
        raise pickle.UnpicklingError("an array is not made of bytes")
    kind, text = dtype.build(), _text(order)
    if text not in ("C", "F") or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise pickle.UnpicklingError(f"an array has the impossible shape {shape}")
    array = np.frombuffer(raw, kind).reshape(shape, order=text)  # type: ignore[call-overload]
    return array.astype(kind.newbyteorder("="))


def _array_of(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.value = _build(raw, dtype, shape, order)
    return array


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if _text(encoding) not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the file uses the encoding {encoding!r}")
    return _text(text).encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _stands() -> dict[tuple[str, str], Callable[..., Any]]:
    allowed: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): _never,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encode,
        ("__builtin__", "bytes"): _no_bytes,  # how Python 3 writes b"" for Python 2
    }
    for package in ("numpy.core", "numpy._core"):
        allowed[(f"{package}.multiarray", "_reconstruct")] = lambda *ignored: _Array()
        allowed[(f"{package}.numeric", "_frombuffer")] = _array_of
    return allowed


def _never(*args: Any) -> Any:
    raise pickle.UnpicklingError("the file calls numpy.ndarray itself")


class _Unpickler(pickle.Unpickler):
    """Admits numpy arrays and nothing else; strings of Python 2 stay bytes."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="bytes")
        self._allowed = _stands()

    def find_class(self, module: str, name: str) -> Any:
        function = self._allowed.get((module, name))
        if function is None:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}")
        return _Stand(function)


def read_pickle(path: str | Path) -> dict[str, Any]:
    """Read a pickled dict of numpy arrays, lists and text; its keys come out as str.

    Raises
    ------
    DamagedFileError
        The file is cut off, is not such a dict, or asks for anything besides numpy arrays.
    """
    return _guarded(Path(path), lambda content: _Unpickler(io.BytesIO(content)).load())


def read_torch_file(path: str | Path) -> dict[str, Any]:
    """Read a dict of numpy arrays that `torch.save` wrote, in its zip format or the older one; no tensors."""
    return _guarded(Path(path), _torch_object)


def _torch_object(content: bytes) -> Any:
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inner = [name for name in archive.namelist() if name.split("/")[-1] == "data.pkl"]
            if len(inner) != 1:
                raise pickle.UnpicklingError("there is no data.pkl in it")
            return _Unpickler(io.BytesIO(archive.read(inner[0]))).load()
    file = io.BytesIO(content)
    first = _Unpickler(file).load()
    if first != _TORCH_MAGIC:  # a plain pickle under the name .pt
        return first
    for _ in range(2):  # protocol version, byte order of the machine
        _Unpickler(file).load()
    return _Unpickler(file).load()


def _guarded(path: Path, read: Callable[[bytes], Any]) -> dict[str, Any]:
    """Run `read` on the file's bytes; whatever a damaged or hostile file provokes becomes one error."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MissingDataError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"expected a file at {path}, found a folder") from None
    try:
        value = read(content)
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}, not a dict")
        return {_text(key): _plain(item) for key, item in value.items()}
    except Exception as error:  # a damaged pickle can raise almost anything: IndexError, zlib.error ...
        reason = str(error) or type(error).__name__
        raise DamagedFileError(
            f"{path} is cut off or is not what it should be: {reason}; fetch it again"
        ) from None


def _plain(value: Any) -> Any:
    """The value of a dict: an array, a list or tuple of plain values, or a plain value."""
    if isinstance(value, _Array):
        if value.value is None:
            raise pickle.UnpicklingError("an array has no content")
        return value.value
    if isinstance(value, list | tuple):
        if not all(isinstance(item, str | bytes | int | float) for item in value):
            raise pickle.UnpicklingError("a list holds more than numbers and text")
        return list(value)
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")
