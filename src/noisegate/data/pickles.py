"""Read downloaded pickles without executing code from them.

A pickle is a program for a small stack machine. This file has a stack machine of its own, which knows
only the instructions that build dicts, lists, text, bytes, numbers and numpy arrays. It never calls a
function that the file names, and makes arrays itself from checked values. The number of instructions
and the size of their results are limited, so that a small file can take neither hours nor gigabytes.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.errors import shown

_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
#: Maximum number of instructions of a file. The largest file we read, CIFAR-100's training set, has
#: about 200,000.
MOST_INSTRUCTIONS = 500_000
#: Arrays are copied out of the file once, or twice if their bytes were written as text.
MOST_COPIES = 4
#: data.pkl of a torch file is stored as it is, or compressed by at most this.
MOST_COMPRESSION = 200


class UnreadablePickleError(ValueError):
    """The reason why a pickle is refused; `reading` adds the file's name."""


class _Mark:
    """Marks the start of a group of values on the stack."""


class _Name:
    """A function or class that the pickle names. It is never looked up."""

    def __init__(self, module: Any, name: Any) -> None:
        self.key = (_text(module), _text(name))


class _Dtype:
    """Arguments of a pickled `numpy.dtype`."""

    def __init__(self, kind: Any, *ignored: Any) -> None:
        self.kind, self.order = _text(kind), "|"
        if len(self.kind) > 16:
            raise UnreadablePickleError("the type of an array is not a type of numbers or text")

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5:
            raise UnreadablePickleError("the type of an array is incomplete")
        self.order = _text(state[1])
        if state[2] is not None or state[3] or state[4]:
            raise UnreadablePickleError("the file holds an array of records")

    def build(self) -> np.dtype[Any]:
        dtype = np.dtype(self.kind)
        if dtype.kind not in "biufSU":
            raise UnreadablePickleError(f"the file holds an array of {dtype}, not of numbers or text")
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """Arguments of a pickled `numpy.ndarray`."""

    value: npt.NDArray[Any] | None = None


def _text(value: Any) -> str:
    text = value.decode("latin1") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise UnreadablePickleError(f"expected text, found {type(value).__name__}")
    return text


class _Machine:
    """Runs the instructions of one pickle.

    Parameters
    ----------
    file : BytesIO
        Read from its current position to the end of the first pickle.
    size : int
        The length of the whole file in bytes, which limits the size of the result.
    """

    def __init__(self, file: io.BytesIO, size: int) -> None:
        self.file, self.budget = file, MOST_COPIES * size + 2**20
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self.file)):
            if count >= MOST_INSTRUCTIONS:
                raise UnreadablePickleError(f"it has more than {MOST_INSTRUCTIONS:,} instructions")
            if opcode.name == "STOP":
                return self._pop()
            self._run(opcode.name, argument)
        raise UnreadablePickleError("it does not end")

    def _run(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _STRINGS:  # text of Python 2 is bytes
            self.stack.append(self._spend(argument.encode("latin1")))
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _HANDLERS:
            _HANDLERS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise UnreadablePickleError(f"the file uses the instruction {name}, which no array needs")

    def _pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise UnreadablePickleError("the stack is empty")
        return self.stack.pop()

    def _top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise UnreadablePickleError("values do not belong together")
        return self.stack[-1]

    def _pop_group(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[place], _Mark):
                group = self.stack[place + 1 :]
                del self.stack[place:]
                return group
        raise UnreadablePickleError("a group of values has no beginning")

    def _spend(self, value: Any) -> Any:
        """Return `value`, or refuse the file if the values built so far are larger than the file can hold."""
        self.budget -= value.nbytes if isinstance(value, np.ndarray) else len(value)
        if self.budget < 0:
            raise UnreadablePickleError("it would build more than its own size")
        return value

    # One method per instruction, in the order of the table below.

    def append(self, _: Any) -> None:
        value = self._pop()
        self._top(list).append(value)

    def appends(self, _: Any) -> None:
        values = self._pop_group()
        self._top(list).extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def set_items(self, _: Any) -> None:
        self._set_items(self._pop_group())

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._top(dict)
        if len(pairs) % 2:
            raise UnreadablePickleError("a key has no value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            # Hashing a nested tuple can take very long.
            if not isinstance(key, str | bytes | int):
                raise UnreadablePickleError(f"a key is a {type(key).__name__}")
            target[key] = value

    def make_list(self, _: Any) -> None:
        self.stack.append(self._pop_group())

    def make_dict(self, _: Any) -> None:
        pairs = self._pop_group()
        self.stack.append({})
        self._set_items(pairs)

    def make_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._pop_group()))

    def make_short_tuple(self, n: int) -> None:
        self.stack.append(tuple(reversed([self._pop() for _ in range(n)])))

    def remember(self, place: Any) -> None:
        self.memo[len(self.memo) if place is None else int(place)] = self._top(object)

    def recall(self, place: Any) -> None:
        if int(place) not in self.memo:
            raise UnreadablePickleError("it refers to a value that is not there")
        self.stack.append(self.memo[int(place)])

    def name(self, argument: Any) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(_Name(module, name))

    def stack_name(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self.stack.append(_Name(module, name))

    def call(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise UnreadablePickleError("it calls something that is no function")
        build = _FUNCTIONS.get(function.key)
        if build is None:
            raise UnreadablePickleError(f"the file asks for {shown('.'.join(function.key), 80)}")
        self.stack.append(build(self, *arguments))

    def set_state(self, _: Any) -> None:
        state = self._pop()
        target = self._top(object)
        if isinstance(target, _Dtype):
            target.set_state(state)
        elif isinstance(target, _Array) and isinstance(state, tuple) and len(state) == 5:
            _, shape, dtype, fortran, raw = state
            target.value = self._build(raw, dtype, shape, "F" if fortran else "C")
        else:
            raise UnreadablePickleError("the file tries to change the reader")

    # Replacements of the functions that a pickled array names.

    def _build(self, raw: Any, dtype: Any, shape: Any, order: Any) -> npt.NDArray[Any]:
        if not (
            isinstance(raw, bytes | bytearray) and isinstance(dtype, _Dtype) and isinstance(shape, tuple)
        ):
            raise UnreadablePickleError("an array is not made of bytes")
        kind, text = dtype.build(), _text(order)
        if text not in ("C", "F") or not all(isinstance(n, int) and n >= 0 for n in shape):
            # The message leaves out the shape: formatting a nested one can take very long.
            raise UnreadablePickleError("an array has an impossible shape")
        array = np.frombuffer(raw, kind).reshape(shape, order=text)  # type: ignore[call-overload]
        return self._spend(array).astype(kind.newbyteorder("="))

    def new_array(self, *ignored: Any) -> _Array:
        return _Array()

    def new_dtype(self, kind: Any, *ignored: Any) -> _Dtype:
        return _Dtype(kind)

    def array_of(self, raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
        array = _Array()
        array.value = self._build(raw, dtype, shape, order)
        return array

    def encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        if _text(encoding) not in ("latin1", "latin-1"):
            raise UnreadablePickleError(f"the file uses the encoding {shown(encoding, 40)}")
        return self._spend(_text(text).encode("latin1"))

    def no_bytes(self) -> bytes:
        return b""


#: Instructions whose argument is the value.
_VALUES = frozenset(
    [
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    ]
)
_STRINGS = frozenset(["STRING", "BINSTRING", "SHORT_BINSTRING"])
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "MARK": _Mark,
}
_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.make_short_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_short_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_short_tuple(3),
    "MEMOIZE": _Machine.remember,
    "PUT": _Machine.remember,
    "BINPUT": _Machine.remember,
    "LONG_BINPUT": _Machine.remember,
    "GET": _Machine.recall,
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.set_state,
}
#: The functions that a pickled array may name, and what is called instead.
_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Machine.new_dtype,
    ("_codecs", "encode"): _Machine.encode,
    ("__builtin__", "bytes"): _Machine.no_bytes,  # how Python 3 writes b"" for Python 2
}
for _package in ("numpy.core", "numpy._core"):
    _FUNCTIONS[(f"{_package}.multiarray", "_reconstruct")] = _Machine.new_array
    _FUNCTIONS[(f"{_package}.numeric", "_frombuffer")] = _Machine.array_of


def read_pickle(path: str | Path) -> dict[str, Any]:
    """Read a pickled dict of numpy arrays, lists and text; its keys come out as str.

    Raises
    ------
    DamagedFileError
        The file is cut off, is not such a dict, or asks for anything besides numpy arrays.
    """
    return _read(Path(path), lambda content: _Machine(io.BytesIO(content), len(content)).load())


def read_torch_file(path: str | Path) -> dict[str, Any]:
    """Read a dict of numpy arrays that `torch.save` wrote, in its zip format or the older one.

    No tensors.
    """
    return _read(Path(path), _torch_object)


def _torch_object(content: bytes) -> Any:
    if content[:2] == b"PK":
        content = _torch_member(content)
        return _Machine(io.BytesIO(content), len(content)).load()
    file, size = io.BytesIO(content), len(content)
    first = _Machine(file, size).load()
    if first != _TORCH_MAGIC:  # a plain pickle under the name .pt
        return first
    for _ in range(2):  # protocol version, byte order of the machine
        _Machine(file, size).load()
    return _Machine(file, size).load()


def _torch_member(content: bytes) -> bytes:
    """The pickle inside a zip file of torch's."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        inner = [entry for entry in archive.infolist() if entry.filename.split("/")[-1] == "data.pkl"]
        if len(inner) != 1:
            raise UnreadablePickleError("there is no data.pkl in it")
        if inner[0].file_size > MOST_COMPRESSION * max(inner[0].compress_size, 2**16):
            raise UnreadablePickleError(f"its data.pkl claims {inner[0].file_size:,} bytes")
        return archive.read(inner[0])


def _read(path: Path, read: Callable[[bytes], Any]) -> dict[str, Any]:
    check_room(MOST_COPIES * regular_size(path), path)
    with reading(path):
        value = read(path.read_bytes())
        if not isinstance(value, dict):
            raise UnreadablePickleError(f"it holds a {type(value).__name__}, not a dict")
        return {_text(key): _plain_value(item) for key, item in value.items()}


def _plain_value(value: Any) -> Any:
    """Check the value of a dict: an array, a list or tuple of plain values, or a plain value."""
    if isinstance(value, _Array):
        if value.value is None:
            raise UnreadablePickleError("an array has no content")
        return value.value
    if isinstance(value, list | tuple):
        if not all(isinstance(item, str | bytes | int | float) for item in value):
            raise UnreadablePickleError("a list holds more than numbers and text")
        return list(value)
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    raise UnreadablePickleError(f"it holds a {type(value).__name__}")
