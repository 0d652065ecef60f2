"""A cache of bytes under a limit."""

from collections.abc import MutableMapping

from . import _sizes, _zfold


class Cache(MutableMapping):
    """A mapping from str or bytes to bytes, compressed; the least recently used values leave.

    Values may be any object with the buffer protocol, of any length; they come back as bytes. All
    methods may be called from any number of threads. A read counts as a use; `in` and iteration do
    not. Iteration begins with the least recently used key.

    A cache belongs to the process that made it: in a forked child all that is asked of it raises
    ForkedError.

    limit  the most memory that the cache may hold, with keys and tables
    codec  as of `zfold.Memory`

    Setting a value raises ValueError if it does not fit below the limit even alone; the key has no
    value then.

    >>> import zfold
    >>> cache = zfold.Cache(limit="16MiB")
    >>> cache["page"] = b"<p>hello</p>" * 1000
    >>> len(cache["page"]), "other" in cache
    (12000, False)
    >>> cache.stats()["hits_total"]
    1

    It works as the cache of cachetools:

    >>> import hashlib, cachetools
    >>> @cachetools.cached(cache, key=str)
    ... def digest(number):
    ...     return hashlib.sha256(b"%d" % number).digest()
    >>> digest(7) == digest(7), "7" in cache
    (True, True)
    """

    def __init__(self, limit="1GiB", codec="lz4"):
        self._cache = _zfold.Cache(_sizes.parse(limit, "limit"), codec)

    @staticmethod
    def _key(key):
        if isinstance(key, str):
            return b"s" + key.encode("utf-8", "surrogatepass")
        if isinstance(key, bytes):
            return b"b" + key
        raise TypeError(f"keys are str or bytes, not {type(key).__name__}")

    def __getitem__(self, key):
        value = self._cache.get(self._key(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key, value):
        self._cache.insert(self._key(key), value)

    def __delitem__(self, key):
        if not self._cache.remove(self._key(key)):
            raise KeyError(key)

    def __contains__(self, key):
        return isinstance(key, (str, bytes)) and self._cache.contains(self._key(key))

    def __iter__(self):
        for key in self._cache.keys():
            yield key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else key[1:]

    def __len__(self):
        return len(self._cache)

    def clear(self):
        """Takes all values out and returns their memory to the system."""
        self._cache.clear()

    def resize(self, limit):
        """Changes the limit; values leave at once if it is lower than what is held."""
        self._cache.resize(_sizes.parse(limit, "limit"))

    @property
    def maxsize(self):
        """The limit in bytes."""
        return self._cache.limit

    @property
    def currsize(self):
        """The bytes of memory held."""
        return self._cache.held

    def stats(self):
        """Returns the figures of now as a dict: sizes in bytes, counters."""
        return self._cache.stats()

    def __repr__(self):
        try:
            stats, show = self.stats(), _sizes.show
        except _zfold.ForkedError:
            return "<zfold.Cache of the parent process>"
        return (
            f"<zfold.Cache: {stats['values']} values, {show(stats['value_bytes'])} in "
            f"{show(stats['held_bytes'])} of {show(stats['limit_bytes'])}>"
        )

    def __reduce__(self):
        raise TypeError("a zfold.Cache belongs to its process")
