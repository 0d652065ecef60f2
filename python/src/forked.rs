//! The error in a forked child.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use zfold_pool::process::Forked;

pyo3::create_exception!(
    zfold,
    ForkedError,
    PyRuntimeError,
    "A forked process was asked for what its parent made. Make a new one after a fork."
);

/// Turns the error in a forked child into the exception.
pub(crate) fn forked(error: Forked) -> PyErr {
    ForkedError::new_err(error.to_string())
}
