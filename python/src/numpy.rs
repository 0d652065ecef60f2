//! Placing what NumPy allocates: a handler of memory as NEP 49 describes it.
//!
//! NumPy's functions are found in the table that it publishes as a capsule for extension modules;
//! their places in it and the layout of a handler are fixed since NumPy 1.22. An array keeps the
//! handler that it was made with, so the heap lives as long as an array in it.
//!
//! - P1: memory is given back to whom it came from: to the heap if its address lies in one of its
//!   regions, else to the C library.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::{self, NonNull};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::Heap;

const CAPSULE: &CStr = c"mem_handler";

/// Places in NumPy's table.
const FEATURE_VERSION: usize = 211;
const SET_HANDLER: usize = 304;

/// The feature version of NumPy 1.22, the first one with handlers.
const FEATURES_MIN: c_uint = 0x0f;

type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// `PyDataMemAllocator`.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// `PyDataMem_Handler`, version 1, and behind it what is ours.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
    heap: zfold_region::Heap,
    /// Smaller ones stay with the C library.
    min: usize,
}

/// A handler that can be put in the place of NumPy's.
#[pyclass(frozen)]
pub(crate) struct Placement {
    capsule: Py<PyAny>,
    set: SetHandler,
}

#[pymethods]
impl Placement {
    #[new]
    fn new(py: Python<'_>, heap: &Bound<'_, Heap>, min: usize) -> PyResult<Self> {
        let set = set_handler(py)?;
        let mut name = [0; 127];
        name.iter_mut().zip(b"zfold").for_each(|(to, &byte)| *to = byte as c_char);
        let context = ptr::null_mut();
        let allocator = Allocator { context, malloc, calloc, realloc, free };
        let heap = heap.get().here()?.clone();
        let handler =
            Box::into_raw(Box::new(Handler { name, version: 1, allocator, heap, min: min.max(1) }));
        // SAFETY: made just now, and no other code has it.
        unsafe { (*handler).allocator.context = handler.cast() };
        // SAFETY: a valid pointer and a name that lives for ever; `destroy` frees what `Box` made.
        let capsule =
            unsafe { ffi::PyCapsule_New(handler.cast(), CAPSULE.as_ptr(), Some(destroy)) };
        // SAFETY: a new reference, or null with an exception set.
        let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?;
        Ok(Self { capsule: capsule.unbind(), set })
    }

    /// Has NumPy allocate by this handler in the present context; returns the one before.
    fn install<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.put(self.capsule.bind(py))
    }

    /// Has NumPy allocate by a handler that `install` returned.
    fn restore(&self, before: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(before).map(drop)
    }
}

impl Placement {
    fn put<'py>(&self, handler: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: NumPy's function of that name, with a capsule of a handler, as both callers have
        // it; it takes its own reference, and returns a new one or null with an exception set.
        let before = unsafe { (self.set)(handler.as_ptr()) };
        // SAFETY: as above.
        unsafe { Bound::from_owned_ptr_or_err(handler.py(), before) }
    }
}

/// Finds `PyDataMem_SetHandler`.
fn set_handler(py: Python<'_>) -> PyResult<SetHandler> {
    let module = py.import("numpy._core._multiarray_umath");
    let module = module.or_else(|_| py.import("numpy.core._multiarray_umath"))?;
    let capsule = module.getattr("_ARRAY_API")?;
    // SAFETY: an object; the capsule has no name.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), ptr::null()) };
    let table = table.cast::<*const c_void>();
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: every NumPy has this place in its table since 1.4.
    let version = unsafe { *table.wrapping_add(FEATURE_VERSION) };
    // SAFETY: `unsigned int PyArray_GetNDArrayCFeatureVersion(void)` is what is there.
    let version =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_uint>(version) };
    // SAFETY: as above; it returns a constant.
    if unsafe { version() } < FEATURES_MIN {
        return Err(PyRuntimeError::new_err("placing arrays needs NumPy 1.22 or later"));
    }
    // SAFETY: there from that version on.
    let set = unsafe { *table.wrapping_add(SET_HANDLER) };
    // SAFETY: `PyObject *PyDataMem_SetHandler(PyObject *)` is what is there.
    Ok(unsafe { std::mem::transmute::<*const c_void, SetHandler>(set) })
}

/// Frees a handler with its capsule.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule that is being destroyed, of this name.
    let handler = unsafe { ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()) };
    let handler = handler.cast::<Handler>();
    if !handler.is_null() {
        // SAFETY: `Box::into_raw` made it, and the capsule was its only owner.
        let handler = unsafe { Box::from_raw(handler) };
        if handler.heap.is_here() {
            drop(handler);
        } else {
            // A lock of the heap may be held for ever in a forked child.
            std::mem::forget(handler);
        }
    }
}

impl Handler {
    fn allocate(&self, len: usize) -> *mut c_void {
        // A forked child has none of the regions; what it allocates is its own.
        if len < self.min || !self.heap.is_here() {
            // SAFETY: any length may be asked for.
            return unsafe { libc::malloc(len.max(1)) };
        }
        match self.heap.alloc(len) {
            Ok(block) => block.into_raw().as_ptr().cast(),
            Err(_) => ptr::null_mut(),
        }
    }

    /// Returns whether memory came from the heap (P1).
    fn is_ours(&self, memory: *mut c_void) -> bool {
        self.heap.contains(memory.addr())
    }

    fn block(&self, memory: *mut c_void) -> Option<zfold_region::Block> {
        let start = NonNull::new(memory.cast::<u8>())?;
        // SAFETY: NumPy gives each piece of memory back once.
        unsafe { self.heap.from_raw(start) }
    }

    fn release(&self, memory: *mut c_void) {
        if !self.is_ours(memory) {
            // SAFETY: P1: it came from `malloc`, or is null.
            unsafe { libc::free(memory) };
        } else if self.heap.is_here() {
            drop(self.block(memory));
        }
    }
}

/// The handler of a context pointer.
///
/// # Safety
/// `context` is that of a handler whose capsule lives.
unsafe fn of<'a>(context: *mut c_void) -> &'a Handler {
    // SAFETY: the caller's promise; a handler is not changed after it is made.
    unsafe { &*context.cast::<Handler>() }
}

unsafe extern "C" fn malloc(context: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: NumPy passes the context of a handler that it holds.
    unsafe { of(context) }.allocate(len)
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let handler = unsafe { of(context) };
    match count.checked_mul(size) {
        // Blocks begin as zeros.
        Some(len) if len >= handler.min && handler.heap.is_here() => handler.allocate(len),
        // SAFETY: any numbers may be asked for; it knows an overflow itself.
        _ => unsafe { libc::calloc(count.max(1), size.max(1)) },
    }
}

unsafe extern "C" fn realloc(context: *mut c_void, memory: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let handler = unsafe { of(context) };
    if memory.is_null() {
        return handler.allocate(len);
    }
    let old = if handler.is_ours(memory) {
        // A forked child's earlier blocks are gone.
        let Some(block) = handler.heap.is_here().then(|| handler.block(memory)).flatten() else {
            return ptr::null_mut();
        };
        let old = block.len();
        let start = block.into_raw();
        if len <= old && len >= old / 2 {
            return start.as_ptr().cast();
        }
        old
    } else if len < handler.min {
        // SAFETY: P1: from `malloc`, and stays there.
        return unsafe { libc::realloc(memory, len.max(1)) };
    } else {
        // SAFETY: P1: from `malloc`.
        unsafe { libc::malloc_usable_size(memory) }
    };
    let new = handler.allocate(len);
    if !new.is_null() {
        // SAFETY: both have at least this many bytes, and no other code has the new one.
        unsafe { ptr::copy_nonoverlapping(memory.cast::<u8>(), new.cast::<u8>(), old.min(len)) };
        handler.release(memory);
    }
    new
}

unsafe extern "C" fn free(context: *mut c_void, memory: *mut c_void, _len: usize) {
    // SAFETY: as in `malloc`.
    unsafe { of(context) }.release(memory);
}

const _: () = assert!(std::mem::offset_of!(Handler, allocator) == 128);
