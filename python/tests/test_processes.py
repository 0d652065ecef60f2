"""Forks, new interpreters, sub-interpreters, and handlers of faults."""

import multiprocessing
import os
import signal
import sys

import numpy as np
import pytest
from conftest import memory


def total(array):
    return float(array.sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_arrays_go_to_worker_processes_as_copies(mem, method):
    arrays = [mem.full(100_000, n, dtype="f8") for n in range(4)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(total, arrays) == [n * 100_000.0 for n in range(4)]


def in_fork(child):
    """Runs `child` in a fork; returns how it ended."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_can_drop_arrays_and_make_a_memory_of_its_own(mem, faults):
    arrays = [mem.full(300_000, n, dtype="f8") for n in range(3)]

    def child():
        arrays.clear()
        assert "parent" in repr(mem)
        try:
            mem.zeros(10)
        except RuntimeError as error:
            assert "after a fork" in str(error)
            own = memory(faults).full(300_000, 5.0)
            os._exit(0 if own.sum() == 1_500_000 else 2)

    assert in_fork(child) == 0
    assert [a[0] for a in arrays] == [0, 1, 2] and arrays[2].sum() == 600_000


def test_a_forked_child_that_touches_an_array_is_killed_and_never_reads_zeros(mem):
    a = mem.full(300_000, 1.0)
    assert in_fork(lambda: os._exit(int(a[5]))) == -signal.SIGSEGV
    assert a.sum() == 300_000


def test_a_forked_child_allocates_under_placement(threads):
    with threads.numpy(min="4KiB"):
        kept = np.ones(100_000)
        own = lambda: os._exit(0 if np.full(100_000, 2.0).sum() == 200_000 else 2)  # noqa: E731
        assert in_fork(own) == 0
    assert kept.sum() == 100_000


PROGRAM = """
import faulthandler, sys, numpy, zfold
order, faults = sys.argv[1:]
if order == "before": faulthandler.enable()
mem = zfold.Memory(resident="1MiB", faults=faults)
a = mem.full(1_000_000, 2.0)
if order == "after": faulthandler.enable()
if order == "checked":
    faulthandler.enable()
    try: mem.empty(5)
    except RuntimeError as error: print("refused" if "faulthandler" in str(error) else error)
    faulthandler.disable()
print(int(a.sum()), flush=True)
if order == "before": faulthandler._sigabrt()
"""


def test_faulthandler_may_be_enabled_before(script, faults):
    status, out, err = script(PROGRAM, "before", faults)
    assert (status, out) == (-signal.SIGABRT, "2000000\n")
    assert "Fatal Python error: Aborted" in err


def test_faulthandler_afterwards_does_no_harm_to_threads(script, threads):
    assert script(PROGRAM, "after", "threads")[:2] == (0, "2000000\n")


def test_faulthandler_afterwards_ends_a_process_with_signals_and_says_so(script):
    status, out, err = script(PROGRAM, "after", "signal")
    assert (status, out) == (-signal.SIGBUS, "") and "Bus error" in err


def test_a_replaced_handler_is_noticed_and_may_be_put_back(script):
    assert script(PROGRAM, "checked", "signal")[:2] == (0, "refused\n2000000\n")


def test_sub_interpreters_are_refused_with_a_reason(script):
    status, out, err = script(
        "try: import _interpreters as i\n"
        "except ImportError: import _xxsubinterpreters as i\n"
        "import zfold\n"
        "sub = i.create()\n"
        "text = '''\n"
        "try: import zfold._zfold\n"
        "except ImportError as error: print('refused', flush=True)\n"
        "else: print('imported', flush=True)'''\n"
        "(getattr(i, 'exec', None) or i.run_string)(sub, text)\n"
    )
    assert (status, out) == (0, "refused\n"), err


def test_programs_end_well_with_arrays_alive(script, faults):
    status, out, err = script(
        "import sys, zfold\n"
        "mem = zfold.Memory(resident='1MiB', faults=sys.argv[1])\n"
        "a = mem.full(1_000_000, 2.0); print(int(a[-1]))\n",
        faults,
    )
    assert (status, out, err) == (0, "2\n", "")
