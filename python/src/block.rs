//! A block of memory as an object with the buffer protocol, which an array keeps alive.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use zfold_pool::Lock;
use zfold_pool::process::Local;

use crate::forked::forked;

/// Blocks of this many bytes are freed without the lock of the interpreter.
const LARGE: usize = 1 << 20;

/// Memory that a buffer gives access to; freed with the object.
#[pyclass(frozen, weakref)]
pub(crate) struct Block {
    /// `None` only while it is dropped.
    block: Option<Local<zfold_region::Block>>,
}

impl Block {
    pub(crate) fn new(block: zfold_region::Block) -> Self {
        Self { block: Some(Local::new(block)) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        // In a forked child nothing is freed.
        if block.get().map_or(true, |block| block.len() < LARGE) {
            return drop(block);
        }
        // Where the interpreter has ended there is no lock to give up.
        let mut block = Some(block);
        Python::try_attach(|py| py.detach(|| drop(block.take())));
        drop(block);
    }
}

#[pymethods]
impl Block {
    /// Gives a view of the bytes.
    ///
    /// # Safety
    /// `view` is null or a structure to be filled, as the interpreter passes it.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let block = slf.get().block.as_ref().expect("taken only by drop").get().map_err(forked)?;
        // SAFETY: `view` is the interpreter's to fill; the bytes live as long as `slf`, to which
        // the view takes a reference. Python programs decide what aliases them.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                block.as_ptr().cast(),
                block.len() as ffi::Py_ssize_t,
                0,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Pages that stay where they are until `release`.
#[pyclass(frozen)]
pub(crate) struct Pin {
    pin: Local<Lock<Option<zfold_region::HeapPin>>>,
}

impl Pin {
    pub(crate) fn new(pin: zfold_region::HeapPin) -> Self {
        Self { pin: Local::new(Lock::new(Some(pin))) }
    }
}

#[pymethods]
impl Pin {
    /// Lets the pages go; a second call does nothing, nor does one in a forked child.
    fn release(&self) {
        if let Ok(pin) = self.pin.get() {
            drop(pin.lock().take());
        }
    }
}
