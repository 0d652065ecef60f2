"""Children that are forked while threads of their parent use a cache and a memory."""

import multiprocessing
import subprocess
import sys

import zfold

# Threads use what the children of fork are refused, drop, and make anew. A child that waits for a lock
# that a thread of its parent held at the fork is killed by SIGALRM.
PROGRAM = """
import os, random, signal, sys, threading
import numpy as np, zfold

faults, children, deadline = sys.argv[1], int(sys.argv[2]), 60
data = {f"k{i}": (b"%08d" % i) * (100 + i) for i in range(300)}
cache = zfold.Cache(limit="256KiB")           # so small that values leave all the time
mem = zfold.Memory(resident="1MiB", faults=faults)
arrays = [mem.full(100_000, n, dtype="f8") for n in range(3)]
pin = mem.pin(arrays[0][:512])
stop = threading.Event()


def use(cache, mem, arrays, n):
    r = random.Random(n)
    key = f"k{r.randrange(300)}"
    cache[key] = data[key]
    key = f"k{r.randrange(300)}"
    assert cache.get(key) in (None, data[key])
    array = arrays[n % len(arrays)]
    assert array[r.randrange(array.size)] == array[0]
    if n % 20 == 0:
        mem.pageout(array)
        assert mem.zeros(r.choice([10, 100_000]))[-1] == 0
        mem.stats(), cache.stats()


def busy(seed):
    n = seed << 20
    while not stop.is_set():
        n += 1
        use(cache, mem, arrays, n)


def refused():
    for ask in [
        lambda: cache["k1"],
        lambda: cache.get("k1"),
        lambda: cache.update(k1=b"x"),
        lambda: cache.pop("k1"),
        lambda: cache.clear(),
        lambda: cache.resize("1MiB"),
        lambda: "k1" in cache,
        lambda: list(cache),
        lambda: len(cache),
        lambda: cache.maxsize,
        lambda: cache.currsize,
        lambda: cache.stats(),
        lambda: mem.zeros(10),
        lambda: mem.pageout(arrays[0]),
        lambda: mem.pin(arrays[0]).__enter__(),
        lambda: arrays[0] in mem,
        lambda: mem.stats(),
    ]:
        try:
            answer = ask()
        except zfold.ForkedError as error:
            assert isinstance(error, RuntimeError) and "after a fork" in str(error)
        else:
            raise AssertionError(f"{answer} was answered")
    assert "of the parent" in repr(cache) and "of the parent" in repr(mem)


def child():
    global cache, mem, arrays, pin
    refused()
    pin.__exit__(None, None, None)
    cache = mem = arrays = pin = None
    cache, mem = zfold.Cache(limit="256KiB"), zfold.Memory(resident="1MiB", faults=faults)
    arrays = [mem.full(1000, 5.0)]
    for n in range(5):
        use(cache, mem, arrays, n)


pin.__enter__()
threads = [threading.Thread(target=busy, args=(n,), daemon=True) for n in range(1, 4)]
[t.start() for t in threads]
for n in range(children):
    pid = os.fork()
    if pid == 0:
        signal.alarm(deadline)
        # Every third ends as it came: with all objects of its parent, which the interpreter drops.
        if n % 3 != 0:
            child()
        if n % 3 != 1:
            sys.exit(0)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        # Threads are left as they are: the failure counts.
        print(f"child {n} ended with {status}", file=sys.stderr, flush=True)
        os._exit(1)
stop.set()
[t.join() for t in threads]
pin.__exit__(None, None, None)
assert all((a == a[0]).all() for a in arrays)
assert all(cache.get(key) in (None, value) for key, value in data.items())
print("well")
"""


def test_forked_children_are_refused_at_once_and_never_wait(faults):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, faults, "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


def ask(cache, results):
    try:
        results.put(cache["key"])
    except zfold.ForkedError as error:
        results.put(str(error))


def test_workers_of_multiprocessing_are_told_what_to_do():
    cache = zfold.Cache(limit="1MiB")
    cache["key"] = b"value"
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    worker = context.Process(target=ask, args=(cache, results))
    worker.start()
    assert "make a new one after a fork" in results.get()
    worker.join()
    assert cache["key"] == b"value"


def test_an_interpreter_ends_while_threads_use_what_it_drops(script):
    status, out, err = script(
        "import threading, zfold\n"
        "cache = zfold.Cache(limit='1MiB')\n"
        "def busy():\n"
        "    while True:\n"
        "        cache['key'] = bytes(50_000)\n"
        "        cache.get('key')\n"
        "for _ in range(3): threading.Thread(target=busy, daemon=True).start()\n"
        "print('ends', flush=True)\n"
    )
    assert (status, out) == (0, "ends\n"), err
