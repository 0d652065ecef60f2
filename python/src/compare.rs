//! The memory that data would take with each codec: the pages of a buffer through a store, and
//! back.

use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zfold_store::{CodecKind, Store, StoreOptions};

use crate::cache::copied;

const PAGE: usize = 4096;

/// The names of all codecs.
pub(crate) fn codecs() -> Vec<&'static str> {
    CodecKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// The result of one codec.
struct Measured {
    held_bytes: u64,
    compressed_bytes: u64,
    same_filled: u64,
    store: Duration,
    load: Duration,
}

fn measure(data: &[u8], codec: &str) -> PyResult<Measured> {
    let spec = crate::memory::codec(codec)?;
    let pages = data.len().div_ceil(PAGE) as u64;
    let fail = |error: &dyn std::fmt::Display| PyRuntimeError::new_err(error.to_string());
    let store = Store::open(&StoreOptions::new(pages.max(1), spec)).map_err(|e| fail(&e))?;
    let mut page = [0; PAGE];
    let mut padded = |chunk: &[u8]| {
        page[..chunk.len()].copy_from_slice(chunk);
        page[chunk.len()..].fill(0);
        page
    };
    let (mut storing, mut loading, mut back) = (Duration::ZERO, Duration::ZERO, [0; PAGE]);
    for (key, chunk) in (0..).zip(data.chunks(PAGE)) {
        let page = padded(chunk);
        let from = Instant::now();
        store.store(key, &page).map_err(|e| fail(&e))?;
        storing += from.elapsed();
    }
    for (key, chunk) in (0..).zip(data.chunks(PAGE)) {
        let from = Instant::now();
        store.load(key, &mut back).map_err(|e| fail(&e))?;
        loading += from.elapsed();
        if back[..chunk.len()] != *chunk {
            return Err(PyRuntimeError::new_err(format!("{codec}: page {key} came back wrong")));
        }
    }
    let stats = store.stats();
    Ok(Measured {
        held_bytes: stats.held_bytes(),
        compressed_bytes: stats.pool.payload_bytes,
        same_filled: stats.same_filled_pages,
        store: storing,
        load: loading,
    })
}

/// Stores the pages of `data` with each codec and reads them back; returns a dict of dicts.
#[pyfunction]
pub(crate) fn compare<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    codecs: Vec<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let data = copied(data)?;
    let bytes = data.as_bytes();
    if bytes.is_empty() {
        return Err(PyValueError::new_err("there is nothing to compare: the data has no bytes"));
    }
    let pages = bytes.len().div_ceil(PAGE) as f64;
    let table = PyDict::new(py);
    for codec in codecs {
        let of = py.detach(|| measure(bytes, &codec))?;
        let row = PyDict::new(py);
        row.set_item("bytes", bytes.len())?;
        row.set_item("compressed_bytes", of.compressed_bytes)?;
        row.set_item("held_bytes", of.held_bytes)?;
        row.set_item("same_filled_pages", of.same_filled)?;
        row.set_item("ratio", bytes.len() as f64 / of.held_bytes.max(1) as f64)?;
        row.set_item("store_us", of.store.as_secs_f64() * 1e6 / pages)?;
        row.set_item("load_us", of.load.as_secs_f64() * 1e6 / pages)?;
        table.set_item(codec, row)?;
    }
    Ok(table)
}
