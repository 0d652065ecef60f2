"""A block device in compressed memory, served by the command `zfold disk`."""

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
import weakref

from . import _sizes

# Runs beside the device; the device ends with it. It says where the device is, and ends when it is
# told to, or when nobody is left who could tell it.
_BESIDE = 'printf "%s\\n" "$uri"; read -r _; exit 0'


def command():
    """Returns the path of the command `zfold` that this package brought, or else of that in PATH.

    Raises FileNotFoundError if there is none.
    """
    try:
        files = importlib.metadata.files("zfold") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "zfold" and (path := file.locate()).is_file():
            return os.fspath(path)
    if path := shutil.which("zfold"):
        return path
    raise FileNotFoundError(
        "no command zfold: install the wheel of zfold, which brings it, or add it to PATH"
    )


def _flags(options):
    """Returns keyword arguments as flags of the command."""
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            yield flag
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}"
        elif value is not None and value is not False:
            yield f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}"


class Disk:
    """A block device in compressed memory, for any NBD client, until the end of a `with` block.

    size     of the device, as int or text
    options  the flags of `zfold disk`, with _ for -: codec="zstd", limit="1GiB", dedup=True,
             load="disk.zfs", save="disk.zfs" ... (`zfold disk --help` lists them)

    A process `zfold disk` serves it, and ends with this one. `uri` is its address, `pid` its number,
    by which `zfold ps` lists it. What it holds is lost at the end, unless `save` names a file.

    Raises ValueError for options that the command refuses, and OSError if it fails.

    >>> import zfold
    >>> with zfold.Disk("64MiB", codec="zstd") as disk:
    ...     print(disk.uri)                                          # doctest: +ELLIPSIS
    nbd+unix:///...
    """

    def __init__(self, size, **options):
        if "run" in options:
            raise TypeError("Disk() takes no 'run': use the command zfold disk for that")
        words = [command(), "disk", f"--size={_sizes.parse(size, 'size')}", *_flags(options), f"--run={_BESIDE}"]
        self._said = tempfile.TemporaryFile()
        # In a session of its own, so that Ctrl-C is this process's alone.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        line = self._process.stdout.readline()
        if not line:
            self._fail(self._process.wait())
        self.uri = line.rstrip("\n") or None
        # Only here: a forked process has the pipe, but not the device.
        self._end = weakref.finalize(self, _end, self._process, os.getpid())

    def _fail(self, status):
        self._process.stdin.close()
        self._process.stdout.close()
        with self._said as said:
            said.seek(0)
            text = said.read().decode(errors="replace").strip() or f"zfold disk: status {status}"
        raise (ValueError if status == 2 else OSError)(text.removeprefix("zfold: "))

    def close(self):
        """Ends the device, and returns when it is gone and saved. A second call does nothing.

        Raises OSError if it could not be saved, or had ended before.
        """
        if status := self._end():
            self._fail(status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<zfold.Disk {self.uri}>" if self._end.alive else "<zfold.Disk, closed>"

    def __reduce__(self):
        raise TypeError("a zfold.Disk belongs to its process; its uri can be sent")


def _end(process, owner):
    """Tells the process to end, and returns its status."""
    if os.getpid() != owner:
        return 0
    try:
        process.stdin.write("\n")
        process.stdin.close()
    except BrokenPipeError:
        pass
    return process.wait()
