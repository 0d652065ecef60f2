//! The costs of lines, looks and the codec on this machine.
//!
//! A watched lock is held for the time between two readings of the clock, one of which counts; an
//! empty hold, two readings in a row, is subtracted.

use std::sync::atomic::{AtomicUsize, Ordering};

use zfold_pool::{Allocator, LockStat, Locking};

use super::objects::{Contestant, Objects, codec};
use super::pace::{Pace, pace};
use super::watch::watch;
use super::worker::wait_for_turn;
use crate::experiment::Error;
use crate::experiment::content::PAGE_BYTES;

/// Looks of a waiting thread before it yields, as in the locks of the pools.
const SPINS: f64 = 100.0;

/// The costs on this machine that the simulator needs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// An atomic operation on a line of its own.
    pub(super) atomic_ns: f64,
    /// From one look of a spinning thread to the next.
    pub(super) look_ns: f64,
    /// A yield of the processor without another thread.
    pub(super) yield_ns: f64,
    /// A hold of a watched lock in which next to nothing is done.
    pub(super) empty_hold_ns: f64,
    /// The time that watching adds to an operation with one such hold.
    pub(super) watch_ns: f64,
    /// To compress a page.
    pub(super) compress_ns: f64,
    /// To decompress a page.
    pub(super) decompress_ns: f64,
}

impl Host {
    /// Returns how long a waiting thread spins before it yields.
    pub(super) fn patience_ns(&self) -> f64 {
        SPINS * self.look_ns
    }

    /// Measures the machine, in windows of `windows` each.
    pub(super) fn measure(objects: &Objects, windows: usize) -> Result<Self, Error> {
        let line = AtomicUsize::new(0);
        let alone = |operation: &(dyn Fn() + Sync)| -> Result<f64, Error> {
            let pace = pace(&mut [()], windows, |(), _| {
                operation();
                Ok(0.0)
            })?;
            Ok(1e9 / pace.per_second)
        };
        let (compress_ns, decompress_ns) = codec_ns(objects, windows)?;
        let (empty_hold_ns, watch_ns) = watching_ns(objects, windows)?;
        Ok(Self {
            atomic_ns: alone(&|| _ = line.fetch_add(1, Ordering::AcqRel))?,
            look_ns: alone(&|| {
                line.load(Ordering::Relaxed);
                std::hint::spin_loop();
            })?,
            yield_ns: alone(&std::thread::yield_now)?,
            empty_hold_ns,
            watch_ns,
            compress_ns,
            decompress_ns,
        })
    }
}

/// Passes a line between two threads; an operation is the way from one to the other.
pub(super) fn pass_line(windows: usize) -> Result<Pace, Error> {
    let line = AtomicUsize::new(0);
    pace(&mut [0, 1], windows, |&mut me, stop| {
        wait_for_turn(&line, me, stop);
        line.store(1 - me, Ordering::Release);
        Ok(0.0)
    })
}

/// Returns for how long a watched lock seems to be held when next to nothing is done (to refuse
/// the handle of an object that was freed), and how much longer that takes than without watching.
fn watching_ns(objects: &Objects, windows: usize) -> Result<(f64, f64), Error> {
    let allocator = Allocator::Zsmalloc;
    let pool = Contestant { allocator, locking: Locking::PoolLock }.pool()?;
    let stale = pool.insert(&objects.blobs[0])?;
    pool.free(stale)?;
    let refuse = || match pool.free(stale) {
        Ok(()) => Err(Error::Other("a freed object was freed again".to_owned())),
        Err(_) => Ok(()),
    };
    let plain = pace(&mut [()], windows, |(), _| refuse().map(|()| 0.0))?;
    let watched = watch(&*pool, windows, refuse)?;
    let all = watched.stats.values().fold(LockStat::default(), |all, one| all.and(one));
    let held = all.hold_total.as_nanos() as f64 / all.acquisitions.max(1) as f64;
    Ok((held, watched.operation_ns() - 1e9 / plain.per_second))
}

/// Returns the time to compress a page and to decompress it.
fn codec_ns(objects: &Objects, windows: usize) -> Result<(f64, f64), Error> {
    let (mut codec, mut out, mut next) = (codec()?, vec![0; PAGE_BYTES], 0);
    let compressed = pace(&mut [(&mut codec, &mut out, &mut next)], windows, |worker, _| {
        *worker.2 = (*worker.2 + 1) % objects.pages.len();
        worker.0.compress(&objects.pages[*worker.2], worker.1);
        Ok(0.0)
    })?;
    let decompressed = pace(&mut [(&mut codec, &mut out, &mut next)], windows, |worker, _| {
        *worker.2 = (*worker.2 + 1) % objects.blobs.len();
        let done = worker.0.decompress(&objects.blobs[*worker.2], worker.1);
        done.map_err(|error| Error::Other(error.to_string()))?;
        Ok(0.0)
    })?;
    Ok((1e9 / compressed.per_second, 1e9 / decompressed.per_second))
}
