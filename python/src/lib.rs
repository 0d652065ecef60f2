//! `_zfold`: the native part of the Python package `zfold`. Arrays, types and documents are in
//! Python.

mod block;
mod cache;
mod forked;
mod memory;
mod numpy;

use pyo3::prelude::*;

#[pymodule]
fn _zfold(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<memory::Heap>()?;
    module.add_class::<block::Block>()?;
    module.add_class::<block::Pin>()?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<numpy::Placement>()?;
    module.add("ForkedError", module.py().get_type::<forked::ForkedError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
