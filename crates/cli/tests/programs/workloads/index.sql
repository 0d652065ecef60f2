-- A table in memory, an index, changes, and a check of all of it.
create table t (a integer primary key, b text, c integer);
with recursive n (i) as (select 1 union all select i + 1 from n where i < :rows)
insert into t select i, hex(i * 7919 % :rows) || ' text of row ' || i, i * i % 1009 from n;
create index x on t (b, c);
update t set b = b || c where a % 7 = 0;
delete from t where a % 11 = 0;
insert into t select a + 10 * :rows, substr(b, 3), c + 1 from t where a % 5 = 0;
pragma integrity_check;
select count(*), sum(length(b)), sum(c), min(b), max(b) from t;
select c, count(*), max(b) from t group by c order by 2 desc, 1 limit 5;
