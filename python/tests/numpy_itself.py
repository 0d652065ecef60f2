"""NumPy's own tests of its core and of numpy.lib, with every array of 4 KiB and more in a memory that
evicts. A program: `.ci/nightly` runs it; it needs pytest and hypothesis.
"""

import os
import sys

import numpy as np
import pytest
import zfold

# They set handlers of their own, and ask which one is set; they are built by meson, too.
LEFT_OUT = "test_mem_policy"


def main():
    # Some tests fill many GiB where they are to be had; with so few resident that takes hours.
    os.environ.setdefault("NPY_AVAILABLE_MEM", "1GB")
    mem = zfold.Memory(resident="8MiB", faults="threads")
    # As numpy.test() does: without what NumPy calls slow.
    arguments = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", f"not {LEFT_OUT}"]
    # What ends a process is said past Python.
    arguments += ["--capture=sys"]
    arguments += ["--pyargs", "numpy._core", "numpy.lib", *sys.argv[1:]]
    with mem.numpy(min="4KiB"):
        status = pytest.main(arguments)
    stats = mem.stats()
    print(f"NumPy {np.__version__}: {mem}")
    print(", ".join(f"{name} {value}" for name, value in stats.items()))
    return status


if __name__ == "__main__":
    sys.exit(main())
