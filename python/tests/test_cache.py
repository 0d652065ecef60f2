"""The cache as a mapping."""

import threading
from collections.abc import MutableMapping

import cachetools
import numpy as np
import pytest
import zfold

VALUE = b"some text that repeats " * 100


def test_a_cache_is_a_mapping():
    cache = zfold.Cache(limit="8MiB")
    assert isinstance(cache, MutableMapping) and not cache
    cache["a"], cache[b"a"], cache["\ud800é"] = b"1", VALUE, b""
    assert (cache["a"], cache[b"a"], cache["\ud800é"], len(cache)) == (b"1", VALUE, b"", 3)
    assert list(cache) == ["a", b"a", "\ud800é"]
    assert dict(cache.items())[b"a"] == VALUE
    assert cache.get("none", 5) == 5 and cache.pop("a") == b"1" and "a" not in cache
    cache.update(x=b"2")
    assert cache.setdefault("x", b"3") == b"2"
    del cache["x"]
    with pytest.raises(KeyError):
        cache["x"]
    with pytest.raises(KeyError):
        del cache["x"]
    for key in [5, None, ("a",)]:
        assert key not in cache
        with pytest.raises(TypeError, match="str or bytes"):
            cache[key] = b""
    cache.clear()
    assert list(cache) == [] and cache.currsize < 1 << 20


def test_a_cache_does_what_a_dict_does():
    cache, like = zfold.Cache(limit="8MiB"), {}
    for mapping in (cache, like):
        assert mapping.setdefault("a", b"1") == b"1" and mapping.setdefault("a", b"2") == b"1"
        assert mapping.setdefault("a") == mapping.setdefault("a", "no value") == b"1"
        mapping.update({"b": b"2"}, c=b"3")
        mapping.update([(b"d", b"")])
        assert mapping.pop(b"d") == b"" and mapping.pop(b"d", None) is None
        with pytest.raises(KeyError, match="'d'"):
            mapping.pop(b"d")
        assert sorted(mapping.values()) == [b"1", b"2", b"3"] and b"2" in mapping.values()
        assert ("c", b"3") in mapping.items() and ("c", b"4") not in mapping.items()
        with pytest.raises(TypeError):
            mapping.pop("a", None, None)
    assert cache == like and cache.popitem() == ("a", b"1")
    other = zfold.Cache(limit="8MiB")
    other.update(cache)
    assert other == {"b": b"2", "c": b"3"} and other.setdefault("d", bytearray(b"4")) == b"4"
    with pytest.raises(TypeError):
        other.setdefault("e")
    other.clear()
    with pytest.raises(KeyError, match="empty"):
        other.popitem()


def among_threads(work, count=4):
    """Returns what each of so many threads returns that begin at once."""
    together, results = threading.Barrier(count), [None] * count

    def run(n):
        together.wait()
        try:
            results[n] = work(n)
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for error in [r for r in results if isinstance(r, Exception)]:
        raise error
    return results


def test_each_call_is_one_step_among_threads():
    cache, keys = zfold.Cache(limit="16MiB"), [str(n) for n in range(3000)]

    def fill(thread):
        return [cache.setdefault(key, b"%d" % thread * 500) for key in keys]

    def pop_items():
        while True:
            try:
                yield cache.popitem()
            except KeyError:
                assert not cache
                return

    def read(thread):
        if thread:
            return [key for key in keys if cache.pop(key, None) is not None]
        while cache:
            for key, value in cache.items():
                assert value[:1] * 500 == value and len(cache) <= len(keys)
            assert b"" not in cache.values()
            zfold.Cache(limit="16MiB").update(cache)
        return []

    # All threads see one value of a key, whichever that is.
    first = among_threads(fill)
    assert all(values == first[0] for values in first)
    # Each pair goes to one thread.
    taken = sum(among_threads(lambda _: list(pop_items())), [])
    assert sorted(key for key, _ in taken) == sorted(keys) and dict(taken) == dict(zip(keys, first[0]))
    # A value that is there or not is popped once, and one that leaves ends no iteration.
    fill(7)
    popped = sum(among_threads(read), [])
    assert sorted(popped) == sorted(keys) and len(cache) == 0


def test_values_are_any_buffer():
    cache = zfold.Cache(limit="8MiB")
    grid = np.arange(10_000).reshape(100, 100)
    for value in [bytearray(VALUE), memoryview(VALUE), grid, grid[::2, ::3], grid.T, grid[:0]]:
        cache["key"] = value
        assert cache["key"] == memoryview(value).tobytes()
    for value in [5, "text", None]:
        with pytest.raises(TypeError):
            cache["key"] = value


def test_the_least_recently_used_leave_below_the_limit():
    cache = zfold.Cache(limit="1MiB")
    rng = np.random.default_rng(5)
    for n in range(2000):
        cache[str(n)] = rng.bytes(2000)
        assert cache["0"] and cache.currsize <= cache.maxsize == 1 << 20
    assert "0" in cache and "1" not in cache and "1999" in cache
    stats = cache.stats()
    assert stats["evictions_total"] + stats["values"] == stats["insertions_total"] == 2000
    with pytest.raises(ValueError, match="limit"):
        cache["large"] = rng.bytes(2 << 20)
    cache.resize("512KiB")
    assert cache.currsize <= 512 << 10 and f"{len(cache)} values" in repr(cache)


def test_cachetools_use_it():
    calls = []

    @cachetools.cached(zfold.Cache(limit="1MiB"), key=str, lock=threading.Lock())
    def work(n):
        calls.append(n)
        return b"%d" % n * (1000 if n < 100 else 2_000_000)

    assert work(7) == work(7) == b"7" * 1000 and calls == [7]
    assert len(work(123)) == len(work(123)) == 6_000_000


def test_threads_share_a_cache():
    cache = zfold.Cache(limit="2MiB")

    def work(thread):
        for n in range(500):
            cache[str(n % 50)] = b"%d" % (n % 50) * 3000
            value = cache.get(str((n * 7) % 50))
            assert value is None or value == b"%d" % ((n * 7) % 50) * 3000

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert cache.stats()["hits_total"] > 1000
