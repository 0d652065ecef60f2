//! Statistics of locks, in the columns of the kernel's `/proc/lock_stat`.

use std::time::Duration;

use zfold_pool::LockStat;

/// Numbers of a lock, or of several as one, as named, counted and timed in `/proc/lock_stat`.
pub(crate) fn rows(stat: &LockStat) -> [(&'static str, &'static str, f64); 12] {
    let count = |name, count: u64| (name, "", count as f64);
    let time = |name, time: Duration| (name, "us", time.as_nanos() as f64 / 1e3);
    [
        count("con-bounces", stat.con_bounces),
        count("contentions", stat.contentions),
        time("waittime-min", stat.wait_min),
        time("waittime-max", stat.wait_max),
        time("waittime-total", stat.wait_total),
        time("waittime-avg", stat.wait_avg()),
        count("acq-bounces", stat.acq_bounces),
        count("acquisitions", stat.acquisitions),
        time("holdtime-min", stat.hold_min),
        time("holdtime-max", stat.hold_max),
        time("holdtime-total", stat.hold_total),
        time("holdtime-avg", stat.hold_avg()),
    ]
}

/// Returns the sum over all locks of a pool.
pub(crate) fn sum(stats: &[LockStat]) -> LockStat {
    stats.iter().copied().reduce(|sum, stat| sum.and(&stat)).unwrap_or_default()
}
