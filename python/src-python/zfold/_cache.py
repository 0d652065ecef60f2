"""A cache of bytes under a limit."""

from collections.abc import ItemsView, MutableMapping, ValuesView

from . import _sizes, _zfold

# No default.
_NONE = object()


class _Items(ItemsView):
    """Keys with their values; what leaves meanwhile is left out."""

    def __iter__(self):
        for key in self._mapping:
            value = self._mapping.get(key)
            if value is not None:
                yield key, value


class _Values(ValuesView):
    """Values; what leaves meanwhile is left out."""

    def __iter__(self):
        return (value for _, value in self._mapping.items())

    def __contains__(self, value):
        return any(value == found for found in self)


class Cache(MutableMapping):
    """A mapping from str or bytes to bytes, compressed; the least recently used values leave.

    Values may be any object with the buffer protocol, of any length; they come back as bytes. A read
    counts as a use; `in` and iteration over keys do not. Iteration begins with the least recently
    used key, and `popitem` takes that.

    All methods may be called from any number of threads. Each does for a key what it does at once, as
    a dict's: `pop` gives a value to one thread, `setdefault` sets one thread's. `items()` and
    `values()` leave out what leaves meanwhile; `dict(cache)` would raise KeyError then.

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

    @staticmethod
    def _name(key):
        return key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else key[1:]

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
        return map(self._name, self._cache.keys())

    def __len__(self):
        return len(self._cache)

    def pop(self, key, default=_NONE):
        """Takes a value out and returns it; if there is none, `default`, or KeyError without one."""
        value = self._cache.take(self._key(key))
        if value is not None:
            return value
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self):
        """Takes the least recently used value out; returns its key and it, KeyError if empty."""
        taken = self._cache.take_oldest()
        if taken is None:
            raise KeyError("popitem: the cache is empty")
        key, value = taken
        return self._name(key), value

    def setdefault(self, key, default=None):
        """Returns the value of a key; sets it to `default`, and returns that, if there is none."""
        return self._cache.get_or_insert(self._key(key), default)

    def update(self, other=(), /, **values):
        """Sets the values of another mapping or of pairs, one after the other."""
        super().update(other.items() if isinstance(other, Cache) else other, **values)

    def items(self):
        """Returns a view of keys with their values, the least recently used first."""
        return _Items(self)

    def values(self):
        """Returns a view of the values, the least recently used first."""
        return _Values(self)

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
