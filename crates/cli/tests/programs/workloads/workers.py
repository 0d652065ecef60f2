"""Builds objects, then lets forked workers read, copy and change them; prints what they found."""
import hashlib
import multiprocessing
import sys

items = int(sys.argv[1])
table = {i: {"name": f"item {i * 7919 % items}", "values": [i, i + 1, i * i]} for i in range(items)}


def work(part):
    """Reads all of the table, changes a part of it, and returns a digest of both."""
    digest = hashlib.sha256()
    for key in sorted(table, key=lambda key: table[key]["name"])[part::8]:
        table[key]["values"].append(part)
        digest.update(repr(table[key]).encode())
    return part, digest.hexdigest(), len(table)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3, maxtasksperchild=2) as pool:
        for answer in pool.map(work, range(8), chunksize=1):
            print(*answer)
    total = sum(sum(entry["values"]) for entry in table.values())
    print(total, sum(len(entry["values"]) for entry in table.values()))
