"""A table in memory with an index over long texts; prints what the check of it says."""
import random
import sqlite3
import sys

random.seed(1)
database = sqlite3.connect(":memory:")
database.execute("create table t (a integer primary key, b text, c real)")
rows = ((i, str(random.getrandbits(200)), random.random()) for i in range(int(sys.argv[1])))
database.executemany("insert into t values (?, ?, ?)", rows)
database.execute("create index x on t (b)")
print(database.execute("pragma integrity_check").fetchone())
print(database.execute("select count(*), sum(length(b)), max(b) from t").fetchone())
