"""Download datasets. A file gets its final name only after its published checksum was verified."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from noisegate._io.files import atomic
from noisegate.data.registry import DATASETS, Entry, Remote, Source, candidates, locate, lookup, root_folder
from noisegate.errors import DamagedFileError, InputError, MissingDataError

Progress = Callable[[str, int, int], None]
_CHUNK = 1 << 20


def md5_of(path: Path) -> str:
    """Compute the MD5 of a file, the checksum that publishers give. It detects damage, not forgery."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def fetch(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    base_url: str | None = None,
    optional: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
    timeout: float = 60,
) -> Path:
    """Download a dataset into the data root and return its folder.

    Files that already exist with the published checksum are skipped. Partial downloads are not resumed,
    and a damaged download leaves no file behind.

    Parameters
    ----------
    base_url : str, optional
        A mirror to use instead of the publisher's addresses.
    optional : bool
        Fetch the optional files too (SVHN's extra images).
    replace : bool
        Replace existing files that have another checksum; otherwise they raise an error.
    progress : function of (file name, bytes so far, bytes in all), optional
        Called during a download; the total is 0 if the server does not send it.
    timeout : float
        Seconds to wait for an answer before a server counts as unreachable.
    """
    entry, folder_root = lookup(name), root_folder(root)
    if entry.source is None:
        raise InputError(f"{entry.name} needs no download: load it by name")
    folder = _target(entry.source, folder_root)
    if not entry.source.remotes:
        if locate(entry.source, folder_root) is not None:
            return folder
        files = ", ".join(need.split("|")[0] for need in entry.source.files)
        raise MissingDataError(
            f"{entry.name} cannot be fetched: {entry.source.advice}; put {files} into {folder}"
        )
    for remote in entry.source.remotes:
        if remote.optional and not optional:
            continue
        job = _Job(entry, remote, folder, base_url, progress, timeout)
        if job.needed(replace):
            job.run()
    return folder


def _target(source: Source, root: Path) -> Path:
    """The folder with all files, else with some of them, else the first candidate."""
    found = locate(source, root)
    if found is not None:
        return found
    return next(
        (place for place in candidates(source, root) if place.is_dir() and any(place.iterdir())),
        root / source.places[0],
    )


class _Checked:
    """A file that counts and hashes the bytes written to it."""

    def __init__(self, file: BinaryIO, report: Callable[[int], None] = lambda count: None) -> None:
        self._file, self._report = file, report
        self.md5, self.count = hashlib.md5(usedforsecurity=False), 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.md5.update(chunk)
        self.count += len(chunk)
        self._report(self.count)

    def flush(self) -> None:
        """The file is flushed once, at the end."""


class _Total:
    """Receives the download's size from pooch, which sets `total` on a progress bar.

    Shows nothing.
    """

    total = 0

    def update(self, count: int) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Job:
    """One file to fetch for one dataset."""

    entry: Entry
    remote: Remote
    folder: Path
    base_url: str | None
    progress: Progress | None
    timeout: float

    @property
    def finals(self) -> dict[Path, str]:
        """The files that must exist afterwards, with their MD5, relative to the dataset's folder."""
        if self.remote.members is None:
            return {self.folder / self.remote.name: self.remote.md5}
        return {self.folder.parent / member: md5 for member, md5 in self.remote.members.items()}

    def needed(self, replace: bool) -> bool:
        """Whether a file is missing.

        A file with another checksum raises an error or is replaced.
        """
        lacking = False
        for path, expected in self.finals.items():
            if not path.exists():
                lacking = True
                continue
            found = md5_of(path)
            if found != expected:
                if not replace:
                    raise DamagedFileError(
                        f"{path} is there, but its MD5 is {found} and the published one {expected}: "
                        "it is damaged or not the original; delete it, or fetch with replace"
                    )
                lacking = True
        return lacking

    def run(self) -> None:
        if self.remote.members is None:
            self.download(self.folder / self.remote.name)
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.folder.parent) as temporary:
            archive = Path(temporary) / self.remote.name
            self.download(archive)
            extract(archive, self.folder.parent, self.remote.members)

    def download(self, path: Path) -> None:
        """Try each address in turn, and rename the first verified copy to `path`."""
        bases = (self.base_url,) if self.base_url is not None else self.remote.urls
        failures: list[Exception] = []
        for base in bases:
            try:
                self._download_from(f"{base.rstrip('/')}/{self.remote.name}", path)
                return
            except (DamagedFileError, _Unreachable) as error:
                failures.append(error)
        damaged = [error for error in failures if isinstance(error, DamagedFileError)]
        if damaged:
            raise damaged[0]
        raise MissingDataError(
            f"{self.entry.name}: could not reach {'; '.join(map(str, failures))}; "
            f"without a network, {self.by_hand()}"
        )

    def by_hand(self) -> str:
        """Describe how to place the files by hand."""
        remotes = self.entry.source.remotes if self.entry.source else (self.remote,)
        names = ", ".join(remote.name for remote in remotes if not remote.optional)
        if self.remote.members is None:
            return f"get {names} elsewhere and put into {self.folder}"
        return f"get {names} elsewhere and unpack in {self.folder.parent}, which makes {self.folder}"

    def _download_from(self, url: str, path: Path) -> None:
        total = _Total()
        with atomic(path) as file:
            writer = _Checked(file, lambda count: self._show(count, int(total.total)))
            self._receive(url, writer, total)
            if writer.md5.hexdigest() != self.remote.md5:
                raise DamagedFileError(
                    f"{url} gave {writer.count} bytes with the MD5 {writer.md5.hexdigest()}, but "
                    f"{self.remote.md5} is published: damaged on the way, or changed; nothing was kept, "
                    "try again or use another base_url"
                )

    def _receive(self, url: str, writer: _Checked, total: _Total) -> None:
        pooch, requests = _pooch()
        # pooch leaves the connection open if writing fails or the server refuses: keep a reference, to close
        # it.
        with contextlib.ExitStack() as answers:

            def close_later(answer: Any, **ignored: Any) -> None:
                answers.callback(answer.close)

            get = pooch.HTTPDownloader(
                progressbar=total,
                chunk_size=_CHUNK,
                timeout=self.timeout,
                headers={"Accept-Encoding": "identity"},
                hooks={"response": close_later},
            )
            try:
                get(url, writer, None)
            except requests.exceptions.RequestException as error:
                if writer.count:
                    raise DamagedFileError(
                        f"the download of {url} broke off after {writer.count} of {total.total} bytes; "
                        "nothing was kept, try again"
                    ) from None
                raise _Unreachable(f"{url} ({_reason(error)})") from None

    def _show(self, count: int, total: int) -> None:
        if self.progress is not None:
            self.progress(self.remote.name, count, total)


class _Unreachable(Exception):
    """A failed download from one address."""


def _reason(error: Any) -> str:
    """One short line: the status the server gave, or the kind of failure."""
    response = getattr(error, "response", None)
    return f"HTTP {response.status_code}" if response is not None else type(error).__name__


def _pooch() -> tuple[Any, Any]:
    try:
        import pooch
        import requests
    except ImportError:
        raise InputError("fetching needs pooch: pip install noisegate[data]") from None
    return pooch, requests


def extract(archive: Path, folder: Path, expected: Mapping[str, str] | None = None) -> None:
    """Unpack a tar archive. If it holds anything but files within `folder`, nothing is unpacked.

    Parameters
    ----------
    expected : mapping, optional
        Members that must be there, with their MD5; each is checked before it gets its name.
    """
    expected = dict(expected or {})
    try:
        with tarfile.open(archive) as tar:
            members = [member for member in tar.getmembers() if not member.isdir()]
            for member in members:
                _check_member(member, archive)
            lacking = sorted(set(expected) - {member.name for member in members})
            if lacking:
                raise DamagedFileError(f"{archive.name} lacks {', '.join(lacking)}")
            for member in members:
                _write_member(tar, member, folder, expected.get(member.name))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{archive.name} is a damaged archive ({error})") from None


def _check_member(member: tarfile.TarInfo, archive: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise DamagedFileError(
            f"{archive.name} holds {member.name!r}, which leads outside; nothing was unpacked"
        )
    if not member.isreg():
        raise DamagedFileError(
            f"{archive.name} holds {member.name!r}, which is no plain file; nothing was unpacked"
        )


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, md5: str | None) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise DamagedFileError(f"{member.name} cannot be unpacked")
    with source, atomic(folder / member.name) as file:
        writer = _Checked(file)
        while chunk := source.read(_CHUNK):
            writer.write(chunk)
        if md5 is not None and writer.md5.hexdigest() != md5:
            raise DamagedFileError(
                f"{member.name} has the MD5 {writer.md5.hexdigest()}, but {md5} is published"
            )


@dataclass(frozen=True)
class Status:
    """Whether a dataset can be loaded, and otherwise how to get it."""

    name: str
    description: str
    available: bool
    folder: Path | None
    advice: str


def status(root: str | os.PathLike[str] | None = None) -> list[Status]:
    """List the named datasets, and where they are or how to get them.

    Nothing is read or downloaded.
    """
    return [_status(entry, root_folder(root)) for _, entry in sorted(DATASETS.items())]


def _status(entry: Entry, root: Path) -> Status:
    if entry.source is None:
        return Status(entry.name, entry.description, True, None, "built in")
    folder = locate(entry.source, root)
    if folder is not None:
        advice = f"in {folder}"
    else:
        advice = f"noisegate data fetch {entry.name}" if entry.source.remotes else entry.source.advice
    return Status(entry.name, entry.description, folder is not None, folder, advice)
