# postgres.sh make: makes a database cluster in ./data.
# postgres.sh ROWS: runs pgbench on it, and queries that sort and join so many rows; prints sums of
# all tables.
set -eu
if [ "$1" = make ]; then
    exec initdb --no-sync --auth=trust --username=test --encoding=UTF8 --no-locale -D data
fi
rows=$1
export PGHOST="$PWD" PGUSER=test PGDATABASE=postgres PGOPTIONS='-c client_min_messages=warning'

postgres -D data -k "$PWD" -c listen_addresses= -c fsync=off -c shared_buffers=16MB \
    -c work_mem=256MB -c hash_mem_multiplier=1 -c jit=off >log 2>&1 &
server=$!
trap 'kill -INT $server 2>/dev/null || true; wait $server || true' EXIT
until psql -qc 'select' >/dev/null 2>&1; do
    kill -0 $server || { cat log >&2; exit 1; }
    sleep 0.05
done

pgbench -i -q -s 1 >made 2>&1 || { cat made >&2; exit 1; }
pgbench --random-seed=7 -c 4 -j 2 -t 200 >benchmark 2>&1 || { cat benchmark >&2; exit 1; }
psql -v ON_ERROR_STOP=1 -v rows="$rows" -qAt <<'SQL'
select count(*), sum(abalance) from pgbench_accounts;
select count(*), sum(tbalance) from pgbench_tellers;
select count(*), sum(bbalance) from pgbench_branches;
select count(*), sum(delta) from pgbench_history;
select count(*), sum(x.v) from
    (select md5(g::text) h, g % 1000 v from generate_series(1, :rows) g) x
    join (select md5(g::text) h from generate_series(1, :rows, 2) g) y using (h);
select md5(string_agg(h, ',' order by h)) from
    (select md5(g::text) h from generate_series(1, :rows) g) x;
SQL
