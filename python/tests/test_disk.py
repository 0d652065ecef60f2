"""Disks: served by the command, for as long as somebody has them."""

import os
import pickle
import socket
import struct
import subprocess
import time
import urllib.parse

import pytest
import zfold
from zfold._disk import command

REQUEST, REPLY = 0x25609513, 0x67446698
READ, WRITE, DISCONNECT = 0, 1, 2


class Client:
    """As much of an NBD client as it takes to read and write."""

    def __init__(self, uri):
        address = urllib.parse.urlsplit(uri)
        assert address.scheme == "nbd+unix"
        path = urllib.parse.parse_qs(address.query)["socket"][0]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        assert self.take(18)[:16] == b"NBDMAGICIHAVEOPT"
        name = address.path.lstrip("/").encode()
        # Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME.
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        self.size, _ = struct.unpack(">QH", self.take(10))

    def take(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the server hung up"
            data += part
        return data

    def ask(self, kind, offset, count, data=b""):
        request = struct.pack(">IHHQQI", REQUEST, 0, kind, 7, offset, count)
        self.socket.sendall(request + data)
        magic, error, handle = struct.unpack(">IIQ", self.take(16))
        assert (magic, error, handle) == (REPLY, 0, 7)
        return self.take(count) if kind == READ else None

    def close(self):
        self.socket.sendall(struct.pack(">IHHQQI", REQUEST, 0, DISCONNECT, 0, 0, 0))
        self.socket.close()


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Sockets in a folder of the test's own; its path must be short."""
    folder = tmp_path / "r"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fspath(folder))
    return folder


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


def test_a_client_reads_what_it_wrote():
    with zfold.Disk("8MiB", codec="zstd") as disk:
        client = Client(disk.uri)
        assert client.size == 8 << 20
        data = bytes(range(256)) * 64
        client.ask(WRITE, 4096, len(data), data)
        assert client.ask(READ, 4096, len(data)) == data
        assert client.ask(READ, 0, 4096) == bytes(4096)
        client.close()
        listed = subprocess.run([command(), "ps", "--json"], capture_output=True, text=True)
        assert f'"pid":{disk.pid}' in listed.stdout.replace(" ", ""), listed
        assert disk.uri in repr(disk)
    assert gone(disk.pid) and "closed" in repr(disk)
    disk.close()


def test_contents_survive_in_a_snapshot(tmp_path):
    kept = tmp_path / "disk.zfs"
    for written in (None, b"kept" * 1024):
        with zfold.Disk(1 << 20, load=kept, save=kept) as disk:
            client = Client(disk.uri)
            if written is None:
                client.ask(WRITE, 0, 4096, b"kept" * 1024)
            else:
                assert client.ask(READ, 0, 4096) == written
            client.close()


def test_what_the_command_refuses_is_raised(tmp_path):
    with pytest.raises(ValueError, match="codec"):
        zfold.Disk("1MiB", codec="no such")
    with pytest.raises(ValueError, match="size"):
        zfold.Disk("1 parsec")
    with pytest.raises(ValueError, match="--no-such"):
        zfold.Disk("1MiB", no_such=True)
    with pytest.raises(OSError):
        zfold.Disk("1MiB", load=tmp_path / "missing")
    with pytest.raises(TypeError, match="run"):
        zfold.Disk("1MiB", run="true")


def test_a_disk_that_ended_before_is_told():
    disk = zfold.Disk("1MiB")
    os.kill(disk.pid, 9)
    with pytest.raises(OSError):
        disk.close()


def test_it_ends_with_its_process(script):
    # Even a process that is killed, and one that forgets.
    for end in ("os.kill(os.getpid(), 9)", "sys.exit()"):
        text = f"import os, sys, zfold; d = zfold.Disk('1MiB'); print(d.pid, flush=True); {end}"
        _, out, err = script(text)
        pid = int(out)
        for _ in range(600):
            if gone(pid):
                break
            time.sleep(0.1)
        assert gone(pid), err


def test_a_forked_process_leaves_it_alone():
    with zfold.Disk("1MiB") as disk:
        child = os.fork()
        if child == 0:
            disk.close()
            os._exit(0)
        os.waitpid(child, 0)
        client = Client(disk.uri)
        client.ask(WRITE, 0, 4096, b"here" * 1024)
        client.close()
        with pytest.raises(TypeError, match="uri"):
            pickle.dumps(disk)
