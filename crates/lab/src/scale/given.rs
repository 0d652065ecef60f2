//! The assumptions, and figures published for other machines.

/// The name on the command line.
pub const NAME: &str = "scale";

/// Numbers of cores that are simulated.
pub(super) const CORES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Numbers of threads that are measured.
pub(super) const MEASURED: [u32; 2] = [1, 2];
pub(super) const THROUGHPUT: &str = "throughput";
pub(super) const PER_SECOND: &str = "operations/s";

/// Cores of a cluster, as in the machine on which per-CPU lists were measured. Assumed.
pub(super) const CLUSTER: u32 = 4;
/// How much more a line from another cluster costs. Assumed: 79.5 ns to 19 ns, published for a
/// desktop processor of two core complexes.
pub(super) const FAR_FACTOR: f64 = 79.5 / 19.0;
/// What each waiting core adds to a hand-over, in transfers. Assumed: the directory answers those
/// that look one after the other, and the next holder is on average in the middle (Boyd-Wickizer,
/// Kaashoek, Morris, Zeldovich, "Non-scalable locks are dangerous", 2012).
pub(super) const WAITER_TRANSFERS: f64 = 0.5;
/// Share of frees that another core hands to the owner, for the variant of per-cpu that shows
/// what they cost. Assumed.
pub(super) const REMOTE_FREES: f64 = 0.1;

/// Cores on which fio read and wrote through z3fold; KiB/s that it read with one list, and with
/// per-CPU lists on all of them.
pub(super) const FIO_CORES: [u32; 2] = [4, 8];
pub(super) const FIO_KIB: [f64; 2] = [496_883.0, 265_942.0];
pub(super) const FIO_LISTS_KIB: f64 = 1568.3 * 1024.0;
pub(super) const FITTED_RANDRW: &str = "randrw read on a machine as slow as the published one";
/// KiB of a page.
pub(super) const PAGE_KIB: f64 = 4.0;

/// Cores of the kernel build with class locks, and its system time in seconds: 32 pools, one pool
/// with one lock, one pool with class locks.
pub(super) const BUILD_CORES: u32 = 32;
pub(super) const BUILD_SYS_S: [f64; 3] = [1452.73, 1844.69, 1469.71];
pub(super) const BUILD_METRIC: &str = "throughput relative to pool-lock";
/// Mean time for which a kernel held the one lock of its pool. Published.
pub(super) const KERNEL_HOLD_NS: f64 = 990.0;

/// Cores of the kernel build with many compactions, and contexts seen at the same time.
pub(super) const COMPACTION_CORES: u32 = 72;
pub(super) const CONTEXTS: u32 = 9;
/// Contentions with any number of contexts, with one, and the latter's acquisitions.
pub(super) const CONTENTIONS: [f64; 2] = [2_343_871.0, 1_774_348.0];
pub(super) const ACQUISITIONS: f64 = 5_136_943.0;
