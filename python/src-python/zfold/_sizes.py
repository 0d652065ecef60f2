"""Sizes in bytes, as people write them."""

import operator
import re

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power


def parse(size, name):
    """Returns the bytes of an int or of a text such as "2GiB", "500 MB" or "4096"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
        unit = _UNITS.get(match[2].upper()) if match else None
        if unit is None:
            raise ValueError(f"{name}: {size!r} is not a size (write 4096, '512MiB' or '2GiB')")
        return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    size = operator.index(size)
    if size < 0:
        raise ValueError(f"{name}: {size} is below zero")
    return size


def show(size):
    """Returns a text such as "1.50 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size /= 1024
    else:
        unit = "TiB"
    return f"{size} B" if unit == "B" else f"{size:.2f} {unit}"
