# redis.sh KEYS: loads a server, saves it in a fork while it changes, and loads what was saved.
# Prints digests of the data; fails if the saved data are not those of the moment of saving.
set -eu
keys=$1

start() {
    redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --dbfilename dump.rdb \
        --save '' --enable-debug-command local --daemonize no >>log 2>&1 &
    server=$!
    trap 'kill $server 2>/dev/null || true' EXIT
    until [ "$(ask ping 2>/dev/null)" = PONG ]; do
        kill -0 $server || { cat log >&2; exit 1; }
        sleep 0.05
    done
}

stop() {
    ask shutdown nosave || true
    wait $server || true
}

ask() {
    redis-cli -s socket "$@"
}

# load FROM TO STEP: sets texts, lists and hashes of so many keys.
load() {
    awk -v from="$1" -v to="$2" -v step="$3" 'BEGIN {
        for (i = from; i < to; i += step) {
            text = "value-" i * 7919 "-" step "-of-a-certain-length-" i * i
            printf "SET text:%d %s%s%s\r\n", i, text, text, text
            if (i % 10 == 0) printf "DEL list:%d\r\nRPUSH list:%d %d %s %d\r\n", i, i, i, text, step
            if (i % 7 == 0) printf "HSET hash:%d a %s b %d\r\n", i % 999, text, i
        }
    }' >commands
    # Says nothing of which the order is certain.
    ask --pipe <commands >piped || { cat piped >&2; exit 1; }
}

start
redis-benchmark -s socket --dbnum 1 -q -n $((keys / 4)) -r "$keys" -d 400 \
    -t set,get,lpush,lrange_100,sadd,hset >benchmark
ask -n 1 flushdb
load 0 "$keys" 1
before=$(ask debug digest)
ask bgsave
load 0 "$keys" 3
load "$keys" $((keys + keys / 2)) 1
until ask info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.05; done
ask info persistence | grep -o 'rdb_last_bgsave_status:[a-z]*'
echo "before $before after $(ask debug digest) $(ask dbsize)"
stop
start
saved=$(ask debug digest)
echo "saved $saved"
stop
[ "$saved" = "$before" ]
