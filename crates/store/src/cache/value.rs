//! A value: its key, and its bytes as objects of the pool.
//!
//! The bytes are cut into pieces of a page. Each piece is an object of its own, compressed, or as
//! it is where that costs no more; an object is as long as its piece only if it is not compressed.
//! So a value of a hundred bytes costs an object of a hundred bytes, not a page.

use std::sync::Arc;

use zfold_pool::{AllocError, Handle, HandleError, Pool, ReadGuard};

use super::CacheError;
use crate::pages::contexts::Contexts;

/// Pieces shorter than this are kept as they are.
const SHORT: usize = 16;

/// The pool of a cache, and what it takes to get there and back.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) pool: Box<dyn Pool>,
    pub(super) contexts: Contexts,
    /// Bytes of a piece.
    pub(super) piece_len: usize,
}

impl Objects {
    /// Makes an object of a piece; returns its handle and length.
    fn insert(&self, piece: &[u8]) -> Result<(Handle, usize), AllocError> {
        let context = &mut *self.contexts.mine();
        let len_max = piece.len().min(self.pool.huge_len()) - 1;
        let compressed = match piece.len() {
            ..SHORT => None,
            _ => self.contexts.compress(context, 0, piece, 0, len_max),
        };
        let object = match compressed {
            Some(len) if len > 0 => &context.object[..len],
            _ => piece,
        };
        Ok((self.pool.insert(object)?, object.len()))
    }

    fn object(&self, handle: Handle) -> Result<ReadGuard<'_>, CacheError> {
        self.pool.read(handle).map_err(|error| match error {
            HandleError::Dead => CacheError::Dead,
            _ => CacheError::Damaged,
        })
    }

    fn free(&self, handles: &[Handle]) {
        for &handle in handles {
            let freed = self.pool.free(handle);
            // A dead pool frees nothing; its objects go with it.
            debug_assert!(matches!(freed, Ok(()) | Err(HandleError::Dead)), "{freed:?}");
        }
    }
}

/// A value, whose objects are freed with it.
#[derive(Debug)]
pub(super) struct Value {
    key: Box<[u8]>,
    /// Bytes of the value.
    len: usize,
    stored_bytes: u64,
    handles: Handles,
    objects: Arc<Objects>,
}

/// As [`Value::charged_bytes`], of a value with such a key and so many pieces.
fn charged_bytes(key_len: usize, pieces: usize) -> u64 {
    let handles = if pieces == 1 { 0 } else { pieces as u64 * size_of::<Handle>() as u64 };
    (size_of::<Value>() + 2 * size_of::<usize>()) as u64 + key_len as u64 + handles
}

/// The objects of a value, in the order of their pieces.
#[derive(Debug)]
enum Handles {
    /// Most values have one.
    One(Handle),
    Many(Box<[Handle]>),
}

impl Handles {
    fn as_slice(&self) -> &[Handle] {
        match self {
            Self::One(handle) => std::slice::from_ref(handle),
            Self::Many(handles) => handles,
        }
    }
}

impl Value {
    /// Makes a value of `bytes` that takes at most `limit_bytes`; what would take more is given up
    /// as soon as that is known.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`], `NoMemory` or `Pool`; nothing is left in the pool.
    pub(super) fn new(
        objects: &Arc<Objects>,
        key: &[u8],
        bytes: &[u8],
        limit_bytes: u64,
    ) -> Result<Self, CacheError> {
        let too_large = || CacheError::TooLarge { limit_bytes };
        let pieces = bytes.len().div_ceil(objects.piece_len);
        let besides = charged_bytes(key.len(), pieces) + objects.contexts.bytes();
        let room = limit_bytes.checked_sub(besides).ok_or_else(too_large)?;
        let mut handles = Vec::new();
        let handles_bytes = pieces.saturating_mul(size_of::<Handle>());
        let no_memory = |_| CacheError::NoMemory { bytes: handles_bytes };
        handles.try_reserve_exact(pieces).map_err(no_memory)?;
        let mut stored_bytes = 0;
        for piece in bytes.chunks(objects.piece_len) {
            let inserted = objects.insert(piece).inspect_err(|_| objects.free(&handles));
            let (handle, len) = inserted.map_err(CacheError::Pool)?;
            stored_bytes += len as u64;
            handles.push(handle);
            if stored_bytes > room {
                objects.free(&handles);
                return Err(too_large());
            }
        }
        let handles = match handles[..] {
            [handle] => Handles::One(handle),
            _ => Handles::Many(handles.into()),
        };
        let (key, objects) = (key.into(), Arc::clone(objects));
        Ok(Self { key, len: bytes.len(), stored_bytes, handles, objects })
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the bytes of the value.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of its objects.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Returns the bytes of memory that it takes besides its objects: itself, its counts, its key
    /// and its handles.
    pub(super) fn charged_bytes(&self) -> u64 {
        charged_bytes(self.key.len(), self.handles.as_slice().len())
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`CacheError`].
    pub(super) fn to_vec(&self) -> Result<Vec<u8>, CacheError> {
        let mut bytes = Vec::new();
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the value into `out`, in place of what is there.
    ///
    /// # Errors
    /// [`CacheError`]; `out` then holds anything.
    pub(super) fn read(&self, out: &mut Vec<u8>) -> Result<(), CacheError> {
        let objects = &*self.objects;
        let more = self.len.saturating_sub(out.len());
        out.try_reserve_exact(more).map_err(|_| CacheError::NoMemory { bytes: self.len })?;
        out.resize(self.len, 0);
        for (piece, &handle) in out.chunks_mut(objects.piece_len).zip(self.handles.as_slice()) {
            let object = objects.object(handle)?;
            if object.len() == piece.len() {
                piece.copy_from_slice(&object);
            } else {
                let decoded = objects.contexts.decompress(0, &object, piece);
                decoded.map_err(|_| CacheError::Damaged)?;
            }
        }
        Ok(())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.objects.free(self.handles.as_slice());
    }
}
