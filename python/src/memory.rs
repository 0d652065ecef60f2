//! The memory of a `zfold.Memory`: a heap of blocks, made from options.
//!
//! The heap is in a `Local`: every method gets it by [`Heap::here`], which refuses in a forked
//! child before anything is locked. Errors become the exceptions that Python programs expect. What
//! is unsafe here asks which handler of `SIGBUS` is installed, and changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{
    PyFileExistsError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zfold_figures::{Figures as _, Unit};
use zfold_pool::process::{Forked, Local};
use zfold_region::{FaultMode, Memory, MemoryOptions, MemoryStats, RegionError};
use zfold_store::backing::{BackingError, FileBacking, FileOptions};
use zfold_store::{BackingOptions, CodecSpec};

use crate::block::{Block, Pin};
use crate::forked::forked;

/// Blocks of memory under one limit.
#[pyclass(frozen)]
pub(crate) struct Heap {
    heap: Local<zfold_region::Heap>,
    by_threads: bool,
    /// The handler of SIGBUS when the memory was made, which must stay where faults are signals.
    handler: usize,
}

impl Heap {
    /// The heap, if this is not a forked child of the process that made it.
    pub(crate) fn here(&self) -> PyResult<&zfold_region::Heap> {
        self.heap.get().map_err(forked)
    }
}

/// Turns an error of a region into the exception that Python programs expect.
pub(crate) fn raise(error: RegionError) -> PyErr {
    let text = error.to_string();
    match error {
        RegionError::NoCapacity { .. }
        | RegionError::TooManyRegions
        | RegionError::PinLimit { .. }
        | RegionError::StoreFull => PyMemoryError::new_err(text),
        RegionError::NotPermitted(_) => PyPermissionError::new_err(text),
        RegionError::Kernel(_) | RegionError::System(_) => PyOSError::new_err(text),
        RegionError::Elsewhere => forked(Forked),
        _ => PyValueError::new_err(text),
    }
}

/// Turns an error of a backing file into the exception that Python programs expect.
fn unusable(error: BackingError) -> PyErr {
    match error {
        BackingError::Foreign { path } => PyFileExistsError::new_err(format!(
            "{} has no mark of zfold, and its contents would be lost (name another, or give \
             force=True to overwrite it: files of earlier versions have no mark)",
            path.display()
        )),
        // Not what a lack of rights to faults by threads is told by.
        error => PyOSError::new_err(error.to_string()),
    }
}

/// Reads a codec's name and level.
pub(crate) fn codec(name: &str) -> PyResult<CodecSpec> {
    name.parse().map_err(|error| PyValueError::new_err(format!("{error}")))
}

/// The present handler of SIGBUS.
fn sigbus_handler() -> usize {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action asks for the present one, which is written to `action`.
    unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros, or what the system wrote, are a valid value.
    unsafe { action.assume_init() }.sa_sigaction
}

#[pymethods]
impl Heap {
    #[new]
    #[pyo3(signature = (resident, codec, capacity, store_limit, backing, threads))]
    fn new(
        py: Python<'_>,
        resident: usize,
        codec: &str,
        capacity: usize,
        store_limit: Option<u64>,
        backing: Option<(PathBuf, Option<u64>, bool)>,
        threads: bool,
    ) -> PyResult<Self> {
        let faults = if threads { FaultMode::Thread } else { FaultMode::InThread };
        let mut options = MemoryOptions::new(resident)
            .with_codec(self::codec(codec)?)
            .with_capacity(capacity)
            .with_store_limit(store_limit)
            .with_faults(faults);
        if let Some((path, len, force)) = backing {
            let file = FileOptions::new().with_len(len).with_force(force);
            let file = FileBacking::open(&path, &file).map_err(unusable)?;
            options = options.with_backing(BackingOptions::new(Arc::new(file)));
        }
        let memory = py.detach(|| Memory::new(&options)).map_err(raise)?;
        let heap = Local::new(zfold_region::Heap::new(&memory));
        Ok(Self { heap, by_threads: threads, handler: sigbus_handler() })
    }

    /// Returns a block of at least this many bytes, all zeros.
    fn alloc(&self, py: Python<'_>, len: usize) -> PyResult<Block> {
        let heap = self.here()?;
        if !self.by_threads && sigbus_handler() != self.handler {
            return Err(PyRuntimeError::new_err(
                "the handler of SIGBUS was replaced since this Memory was made, so a touch of its \
                 arrays would end the process (call faulthandler.enable() before zfold.Memory(), \
                 or use faults='threads')",
            ));
        }
        let block = py.detach(|| heap.alloc(len)).map_err(raise)?;
        Ok(Block::new(block))
    }

    /// Keeps the pages of a range of addresses where they are.
    fn pin(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<Pin> {
        let heap = self.here()?;
        py.detach(|| heap.pin(address, len)).map(Pin::new).map_err(raise)
    }

    /// Compresses the pages of a range of addresses.
    fn pageout(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        let heap = self.here()?;
        py.detach(|| heap.pageout(address, len)).map_err(raise)
    }

    /// Brings compressed pages of a range of addresses, as long as there is room.
    fn prefetch(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        let heap = self.here()?;
        py.detach(|| heap.prefetch(address, len)).map_err(raise)
    }

    /// Returns whether an address is of this memory.
    fn contains(&self, address: usize) -> PyResult<bool> {
        Ok(self.here()?.contains(address))
    }

    /// Returns all figures.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let heap = self.here()?;
        let (memory, heap) = py.detach(|| (heap.memory().stats(), heap.stats()));
        let stats = PyDict::new(py);
        for figure in MemoryStats::ALL {
            let number = (figure.of)(&memory);
            match figure.unit {
                Unit::Pages => {
                    let name = figure.name.trim_end_matches("_pages");
                    stats.set_item(format!("{name}_bytes"), number * memory.page_bytes)?;
                }
                _ => stats.set_item(figure.name, number)?,
            }
        }
        for (name, value) in [
            ("arrays", heap.blocks),
            ("array_bytes", heap.block_bytes),
            ("regions", heap.regions),
            // As `loads_total` was called.
            ("store_faults_total", memory.loads_total),
        ] {
            stats.set_item(name, value)?;
        }
        stats.set_item("fault_p50_seconds", memory.latency.p50 as f64 / 1e9)?;
        stats.set_item("fault_p99_seconds", memory.latency.p99 as f64 / 1e9)?;
        Ok(stats)
    }
}
