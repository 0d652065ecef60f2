//! The cache behind `zfold.Cache`: keys are bytes here.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use zfold_store::{self as store, CacheError, CacheOptions};

/// Values of bytes by keys of bytes, compressed, under a limit.
#[pyclass(frozen)]
pub(crate) struct Cache {
    cache: store::Cache,
}

fn raise(error: CacheError) -> PyErr {
    match error {
        CacheError::TooLarge { .. } => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

#[pymethods]
impl Cache {
    #[new]
    fn new(limit: u64, codec: &str) -> PyResult<Self> {
        let options = CacheOptions::new(limit).with_codec(crate::memory::codec(codec)?);
        let cache = store::Cache::open(&options);
        let cache = cache.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { cache })
    }

    /// Gives a key the bytes of a buffer, which are copied first: others may write to it.
    fn insert(&self, py: Python<'_>, key: &[u8], value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            return py.detach(|| self.cache.insert(key, bytes)).map_err(raise);
        }
        let buffer = Buffer::get(value)?;
        let bytes = buffer.copy(py)?;
        py.detach(|| self.cache.insert(key, &bytes)).map_err(raise)
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = py.detach(|| self.cache.get(key)).map_err(raise)?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn remove(&self, py: Python<'_>, key: &[u8]) -> bool {
        py.detach(|| self.cache.remove(key))
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.cache.contains(key)
    }

    fn keys<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let keys = py.detach(|| self.cache.keys());
        keys.iter().map(|key| PyBytes::new(py, key)).collect()
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.cache.clear());
    }

    fn resize(&self, py: Python<'_>, limit: u64) {
        py.detach(|| self.cache.resize(limit));
    }

    fn __len__(&self) -> usize {
        self.cache.len()
    }

    #[getter]
    fn limit(&self) -> u64 {
        self.cache.limit_bytes()
    }

    #[getter]
    fn held(&self) -> u64 {
        self.cache.held_bytes()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.cache.stats();
        let stats = PyDict::new(py);
        for (name, value) in [
            ("limit_bytes", self.cache.limit_bytes()),
            ("held_bytes", of.held_bytes),
            ("metadata_bytes", of.metadata_bytes),
            ("value_bytes", of.value_bytes),
            ("compressed_bytes", of.pool.payload_bytes),
            ("values", of.values),
            ("insertions_total", of.insertions_total),
            ("refusals_total", of.refusals_total),
            ("hits_total", of.hits_total),
            ("misses_total", of.misses_total),
            ("evictions_total", of.evictions_total),
            ("removals_total", of.removals_total),
        ] {
            stats.set_item(name, value)?;
        }
        Ok(stats)
    }
}

/// The bytes of an object with the buffer protocol, whatever their type and strides.
pub(crate) struct Buffer<'py>(Bound<'py, PyAny>);

impl<'py> Buffer<'py> {
    pub(crate) fn get(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let view = value.py().import("builtins")?.getattr("memoryview")?.call1((value,))?;
        if view.getattr("c_contiguous")?.is_truthy()? {
            return Ok(Self(view.call_method1("cast", ("B",)).or_else(|_| {
                // Empty shapes and odd formats cannot be cast; their bytes can be copied.
                view.call_method0("tobytes")
            })?));
        }
        Ok(Self(view.call_method0("tobytes")?))
    }

    /// Copies the bytes.
    pub(crate) fn copy(&self, py: Python<'py>) -> PyResult<Vec<u8>> {
        PyBuffer::<u8>::get(&self.0)?.to_vec(py)
    }
}
