"""Memories for the tests: each test runs with faults by threads and by signals."""

import subprocess
import sys

import pytest
import zfold


def memory(faults, resident="1MiB", **more):
    try:
        return zfold.Memory(resident=resident, faults=faults, **more)
    except PermissionError as error:
        pytest.skip(f"faults by threads: {error}")


@pytest.fixture(params=["threads", "signal"])
def faults(request):
    if request.param == "threads":
        memory("threads")
    return request.param


@pytest.fixture
def mem(faults):
    return memory(faults)


@pytest.fixture
def threads():
    """A memory on which system calls work."""
    return memory("threads")


@pytest.fixture
def script():
    """Runs a Python program; returns its status, output and error output."""

    def run(text, *arguments):
        command = [sys.executable, "-c", text, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    return run


def pytest_configure(config):
    # The tests of stores that zarr brings are coroutines.
    if config.pluginmanager.hasplugin("asyncio"):
        config.option.asyncio_mode = "auto"
