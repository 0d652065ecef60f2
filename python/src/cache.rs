//! The cache behind `zfold.Cache`: keys are bytes here.

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use zfold_figures::Figures as _;
use zfold_pool::process::Local;
use zfold_store::{self as store, CacheError, CacheOptions, CacheStats};

use crate::forked::forked;

/// Values of bytes by keys of bytes, compressed, under a limit.
#[pyclass(frozen)]
pub(crate) struct Cache {
    cache: Local<store::Cache>,
}

impl Cache {
    /// The cache, if this is not a forked child of the process that made it.
    fn here(&self) -> PyResult<&store::Cache> {
        self.cache.get().map_err(forked)
    }
}

fn raise(error: CacheError) -> PyErr {
    match error {
        CacheError::TooLarge { .. } => PyValueError::new_err(error.to_string()),
        CacheError::NoMemory { .. } => PyMemoryError::new_err(error.to_string()),
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
        Ok(Self { cache: Local::new(cache) })
    }

    fn insert(&self, py: Python<'_>, key: &[u8], value: &Bound<'_, PyAny>) -> PyResult<()> {
        let cache = self.here()?;
        let value = copied(value)?;
        let bytes = value.as_bytes();
        py.detach(|| cache.insert(key, bytes)).map_err(raise)
    }

    /// Returns the value that the key has, or else has then.
    fn get_or_insert<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let cache = self.here()?;
        // What is no value is refused only where one is needed.
        let value = match copied(value) {
            Ok(value) => value,
            Err(error) => return self.get(py, key)?.ok_or(error),
        };
        let bytes = value.as_bytes();
        let found = py.detach(|| cache.get_or_insert(key, bytes)).map_err(raise)?;
        Ok(found.map_or(value, |bytes| PyBytes::new(py, &bytes)))
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let cache = self.here()?;
        let value = py.detach(|| cache.get(key)).map_err(raise)?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn take<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let cache = self.here()?;
        let value = py.detach(|| cache.take(key)).map_err(raise)?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn take_oldest<'py>(&self, py: Python<'py>) -> PyResult<Option<[Bound<'py, PyBytes>; 2]>> {
        let cache = self.here()?;
        let taken = py.detach(|| cache.take_oldest()).map_err(raise)?;
        Ok(taken.map(|(key, value)| [PyBytes::new(py, &key), PyBytes::new(py, &value)]))
    }

    fn remove(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let cache = self.here()?;
        Ok(py.detach(|| cache.remove(key)))
    }

    fn contains(&self, key: &[u8]) -> PyResult<bool> {
        Ok(self.here()?.contains(key))
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let cache = self.here()?;
        let keys = py.detach(|| cache.keys());
        Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.here()?;
        py.detach(|| cache.clear());
        Ok(())
    }

    fn resize(&self, py: Python<'_>, limit: u64) -> PyResult<()> {
        let cache = self.here()?;
        py.detach(|| cache.resize(limit));
        Ok(())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.here()?.len())
    }

    #[getter]
    fn limit(&self) -> PyResult<u64> {
        Ok(self.here()?.limit_bytes())
    }

    #[getter]
    fn held(&self) -> PyResult<u64> {
        Ok(self.here()?.held_bytes())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.here()?.stats();
        let stats = PyDict::new(py);
        for figure in CacheStats::ALL {
            stats.set_item(figure.name, (figure.of)(&of))?;
        }
        Ok(stats)
    }
}

/// The bytes of an object with the buffer protocol, whatever their type and strides; a copy, unless
/// nobody can write to them.
fn copied<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    let view = value.py().import("builtins")?.getattr("memoryview")?.call1((value,))?;
    Ok(view.call_method0("tobytes")?.cast_into()?)
}
