"""An image stack four times larger than the memory it may have, beside other ways to keep it.

    python larger_than_memory.py [--size 1GiB] [--resident SIZE] [--only NAME,...] [--picture FILE]

Each way runs in a process of its own: fill the stack frame by frame, subtract the background from
all frames, take each frame's mean and maximum, and follow five small windows through all frames. The
answers must be the same. The table says how long each step took, how much memory the process held
at most (its own, and mapped files), and what had to change in a program written for NumPy. A way
whose package is not installed is named and left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import numpy as np

SIDE = 1024
MIB = 1 << 20
STEPS = ("fill", "subtract", "reduce", "trace")


class Numpy:
    change = "nothing"

    def __init__(self, shape, resident):
        self.stack = np.empty(shape, np.uint16)

    def stored(self):
        return 0


class Zfold(Numpy):
    change = "1 line: np.empty -> mem.empty"

    def __init__(self, shape, resident):
        import zfold

        self.mem = zfold.Memory(resident=resident, codec="page")
        self.stack = self.mem.empty(shape, np.uint16)

    def stored(self):
        return self.mem.stats()["store_bytes"]


class Memmap(Numpy):
    change = "1 line, and a file; page cache has no limit"

    def __init__(self, shape, resident):
        self.file = tempfile.NamedTemporaryFile(dir="/var/tmp")
        self.stack = np.memmap(self.file.name, np.uint16, "w+", shape=shape)


class Blosc2(Numpy):
    change = "a slice is a copy; not all of NumPy takes it"

    def __init__(self, shape, resident):
        import blosc2

        self.stack = blosc2.empty(shape, np.uint16, chunks=(1, SIDE, SIDE))

    def stored(self):
        return self.stack.schunk.cbytes


class Zarr(Numpy):
    change = "a slice is a copy; not all of NumPy takes it"

    def __init__(self, shape, resident):
        import zarr

        self.stack = zarr.create_array(
            zarr.storage.MemoryStore(), shape=shape, dtype=np.uint16, chunks=(1, SIDE, SIDE)
        )


class Memopro(Numpy):
    change = "1 line: memopro.enable(budget)"

    def __init__(self, shape, resident):
        import memopro

        memopro.enable(budget=resident)
        self.stack = np.empty(shape, np.uint16)


WAYS = {
    "numpy": Numpy,
    "zfold": Zfold,
    "np.memmap": Memmap,
    "blosc2": Blosc2,
    "zarr": Zarr,
    "memopro": Memopro,
}


def frame(number):
    """A dim picture of a camera: few photons on a background, a bright spot that moves."""
    random = np.random.default_rng(number)
    picture = random.poisson(3, (SIDE, SIDE)).astype(np.uint16) + np.uint16(100)
    at = (number * 7) % (SIDE - 64)
    picture[at : at + 64, at : at + 64] += 900
    return picture


def held():
    """Returns the bytes of this process's own memory and of mapped files that are resident."""
    figures = {}
    with open("/proc/self/status") as status:
        for line in status:
            name, _, rest = line.partition(":")
            if name.startswith("Rss"):
                figures[name] = int(rest.split()[0]) << 10
    return figures["RssAnon"] + figures["RssShmem"], figures["RssFile"]


def run(name, frames, resident):
    """Takes all steps in this process; prints what happened as JSON."""
    pictures = [frame(number) for number in range(16)]
    before, line, stop = held(), [], threading.Event()
    way = WAYS[name]((frames, SIDE, SIDE), resident)
    stack, began, seconds = way.stack, time.perf_counter(), {}

    def watch():
        while not stop.wait(0.02):
            own, files = held()
            line.append((time.perf_counter() - began, own - before[0], files - before[1], way.stored()))

    threading.Thread(target=watch, daemon=True).start()

    def step(name, work):
        start = time.perf_counter()
        answer = work()
        seconds[name] = time.perf_counter() - start
        return answer

    def fill():
        for number in range(frames):
            stack[number] = pictures[number % 16] + np.uint16(number % 7)

    def subtract():
        background = np.median([stack[number] for number in range(0, frames, frames // 8)], axis=0)
        background = background.astype(np.uint16) - np.uint16(50)
        for number in range(frames):
            stack[number] = stack[number] - background

    def reduce():
        return [(float(np.mean(stack[number])), int(np.max(stack[number]))) for number in range(frames)]

    def trace():
        places = np.random.default_rng(1).integers(0, SIDE - 8, (5, 2))
        windows = [np.asarray(stack[:, y : y + 8, x : x + 8]) for y, x in places]
        return [window.mean(axis=(1, 2)).tolist() for window in windows]

    step("fill", fill)
    step("subtract", subtract)
    answers = [step("reduce", reduce), step("trace", trace)]
    stop.set()
    print(json.dumps({"seconds": seconds, "line": line, "answer": zlib.crc32(repr(answers).encode())}))


def draw(path, results, size, resident):
    """Draws time by step, memory, and how memory went on in zfold."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(results)
    figure, (times, memory, course) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    left = np.zeros(len(names))
    for step in STEPS:
        seconds = np.array([results[name]["seconds"][step] for name in names])
        times.barh(names, seconds, left=left, label=step)
        left += seconds
    times.set(xlabel="seconds", title="Time")
    times.legend(fontsize=8)
    own, files = (
        [max(point[at] for point in results[name]["line"]) / MIB for name in names] for at in (1, 2)
    )
    memory.barh(names, own, label="own memory")
    memory.barh(names, files, left=own, label="mapped file")
    memory.axvline(size / MIB, color="gray", linestyle=":", label="the data")
    memory.set(xlabel="MiB", title="Most held")
    memory.legend(fontsize=8)
    for axes in (times, memory):
        axes.invert_yaxis()
    if "zfold" in results:
        clock, total, _, stored = np.array(results["zfold"]["line"]).T
        course.plot(clock, total / MIB, label="all of the process")
        course.plot(clock, stored / MIB, label="compressed")
        course.axhline(resident / MIB, color="gray", linestyle="--", label="resident limit")
        course.set(xlabel="seconds", ylabel="MiB", title="zfold")
        course.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--resident", help="memory for pages as they are (default: a quarter of SIZE)")
    parser.add_argument("--only", default=",".join(WAYS), help="names, separated by commas")
    parser.add_argument("--patience", type=float, default=300, help="seconds for each (default: 300)")
    parser.add_argument("--picture", help="draws the result into this file (needs matplotlib)")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in WAYS]:
        parser.error(f"--only has no {', '.join(unknown)}; name some of {', '.join(WAYS)}")
    frames = max(16, parse(options.size) // (SIDE * SIDE * 2))
    size = frames * SIDE * SIDE * 2
    resident = parse(options.resident) if options.resident else size // 4
    if options.way:
        return run(options.way, frames, resident)
    print(f"{frames} frames, {size // MIB} MiB, of which {resident // MIB} MiB may be resident")
    heads = "".join(f"{head:>10}" for head in (*STEPS, "held MiB", "file MiB"))
    print(f"{'':10}{heads}  what changes")
    results = {}
    for name in names:
        command = [sys.executable, __file__, "--way", name]
        command += ["--size", str(size), "--resident", str(resident)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.patience)
        except subprocess.TimeoutExpired:
            print(f"{name:10}  had not ended after {options.patience} s")
            continue
        if done.returncode:
            print(f"{name:10}  {(done.stderr.strip().splitlines() or ['it was killed'])[-1]}")
            continue
        results[name] = result = json.loads(done.stdout.splitlines()[-1])
        own, files = (max(point[at] for point in result["line"]) // MIB for at in (1, 2))
        seconds = "".join(f"{result['seconds'][step]:9.2f}s" for step in STEPS)
        print(f"{name:10}{seconds}{own:10}{files:10}  {WAYS[name].change}", flush=True)
    if len({result["answer"] for result in results.values()}) > 1:
        sys.exit("the answers differ: " + str({name: of["answer"] for name, of in results.items()}))
    if options.picture:
        draw(options.picture, results, size, resident)


def parse(text):
    """Returns the bytes of a size like `256MiB`."""
    for unit, bytes in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * bytes)
    return int(text)


if __name__ == "__main__":
    main()
