#!/usr/bin/env python3
"""pack.py RECORDED SPACES KEPT MIB: writes what is left of recorded touches to stdout.

Of the events of the spaces (numbers, joined by +), those of one page in KEPT are left, drawn by its
number; and of the touches, those that miss in a cache of MIB (as a KEPT-th of it) that drops the page
touched the longest time ago. README.md describes what is written.
"""

import struct
import sys
from collections import OrderedDict

MASK = (1 << 64) - 1


def mixed(page, space):
    """The finisher of SplitMix."""
    number = (page ^ space << 50 ^ 7 << 40) * 0x9E3779B97F4A7C15 & MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def left(recorded, spaces, kept, most):
    """Yields (space, page), and whether it is gone."""
    cache, known, draws = OrderedDict(), set(), {}
    for _, space, kind, _, page in struct.iter_unpack("<IHBBQ", recorded):
        if space not in spaces or kind < 2:
            continue
        key = space, page
        if key not in draws:
            draws[key] = mixed(page, space) % kept == 0
        if not draws[key]:
            continue
        if kind == 6:
            if key in known:
                known.remove(key)
                cache.pop(key, None)
                yield key, True
            continue
        known.add(key)
        if key in cache:
            cache.move_to_end(key)
            continue
        yield key, False
        if len(cache) == most:
            cache.popitem(last=False)
        cache[key] = None


def main():
    path, spaces, kept, mib = sys.argv[1:]
    with open(path, "rb") as file:
        recorded = file.read()
    kept = int(kept)
    spaces = set(map(int, spaces.split("+")))
    events = list(left(recorded, spaces, kept, int(mib) * 256 // kept))
    rank = {key: at for at, key in enumerate(sorted({key for key, _ in events}))}
    out, before = bytearray(), 0
    for key, gone in events:
        step = rank[key] - before
        before = rank[key]
        number = (step << 1 if step >= 0 else -step * 2 - 1) << 1 | gone
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    sys.stdout.buffer.write(out)


main()
