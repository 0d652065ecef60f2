"""What data would take in compressed memory."""

from . import _sizes, _zfold


class Comparison(dict):
    """What data took under each codec: a dict of dicts that prints as a table."""

    def __repr__(self):
        lines = [f"{'codec':<10} {'held':>12} {'ratio':>7} {'store us':>9} {'load us':>8}"]
        for codec, row in self.items():
            lines.append(
                f"{codec:<10} {_sizes.show(row['held_bytes']):>12} {row['ratio']:>7.2f} "
                f"{row['store_us']:>9.1f} {row['load_us']:>8.1f}"
            )
        return "\n".join(lines)


def compare(data, codecs=("lz4", "page", "zstd")):
    """Stores the 4 KiB pages of `data` with each codec, reads them back, and says what they took.

    `data` is an array or another object with the buffer protocol. Returns a `Comparison`: for each
    codec a dict of `bytes`, `compressed_bytes`, `held_bytes` (all memory, with tables), `ratio` (of
    `bytes` and `held_bytes`), `same_filled_pages`, and the mean times `store_us` and `load_us` for
    a page. Needs memory for a copy of the data.

    Raises ValueError for an unknown codec and for data without bytes.

    >>> import numpy, zfold
    >>> table = zfold.compare(numpy.arange(100_000))
    >>> table["page"]["ratio"] > 1.5
    True
    >>> print(table)            # doctest: +ELLIPSIS
    codec              held   ratio  store us  load us
    lz4  ...
    """
    if isinstance(codecs, str):
        codecs = (codecs,)
    return Comparison(_zfold.compare(data, list(codecs)))
