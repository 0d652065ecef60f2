//! A thread's means to compress and decompress: a context for each codec, made when first used, and
//! room for pages.

use std::cell::{RefCell, RefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use thread_local::ThreadLocal;

use crate::codec::{Codec, CodecError, DecodeError, Dictionary};
use crate::entry::State;
use crate::options::CodecChoice;

/// Bytes of the key in front of an object, if the store puts it there.
pub(crate) const KEY_BYTES: usize = size_of::<u64>();

/// The contexts of all threads.
#[derive(Debug)]
pub(crate) struct Contexts {
    page_len: usize,
    choices: Vec<CodecChoice>,
    threads: ThreadLocal<RefCell<Context>>,
    bytes: AtomicU64,
}

/// The context of one thread.
#[derive(Debug)]
pub(crate) struct Context {
    codecs: [Option<Box<dyn Codec>>; State::CODECS_MAX],
    /// A key and a page: an object that is being made.
    pub(crate) object: Vec<u8>,
    /// A page beside; empty until it is first needed. A caller that needs it takes it, so that the
    /// context can be used meanwhile, and puts it back.
    pub(crate) page: Vec<u8>,
}

/// What is needed to decompress the pages of one store, made beforehand; see
/// [`Store::load_with`](crate::Store::load_with).
#[derive(Debug)]
pub struct Loader {
    /// By priority.
    codecs: Vec<Box<dyn Codec>>,
}

impl Loader {
    /// As [`Contexts::decompress`].
    pub(super) fn decompress(
        &mut self,
        priority: u8,
        bytes: &[u8],
        page: &mut [u8],
    ) -> Result<(), DecodeError> {
        let codec = self.codecs.get_mut(usize::from(priority)).ok_or(DecodeError)?;
        codec.decompress(bytes, page)
    }
}

impl Contexts {
    /// # Errors
    /// When a codec takes no dictionary, or no pages of this length.
    pub(crate) fn new(page_len: usize, choices: Vec<CodecChoice>) -> Result<Self, CodecError> {
        for choice in &choices {
            choice.spec.context_with(page_len, choice.dictionary.as_ref())?;
        }
        let dictionaries = choices.iter().filter_map(|choice| choice.dictionary.as_ref());
        let bytes = dictionaries.map(|dictionary| dictionary.bytes().len() as u64).sum();
        let (threads, bytes) = (ThreadLocal::new(), AtomicU64::new(bytes));
        Ok(Self { page_len, choices, threads, bytes })
    }

    pub(crate) fn choices(&self) -> &[CodecChoice] {
        &self.choices
    }

    /// Makes a context of each codec, which the threads do not share.
    pub(crate) fn loader(&self) -> Loader {
        let codecs = self.choices.iter().map(|choice| {
            let codec = choice.spec.context_with(self.page_len, choice.dictionary.as_ref());
            codec.expect("tried when the store was made")
        });
        Loader { codecs: codecs.collect() }
    }

    /// Returns the bytes that all contexts and dictionaries hold.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a gauge.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the calling thread's context.
    ///
    /// # Panics
    /// If the thread has it already.
    #[inline]
    pub(crate) fn mine(&self) -> RefMut<'_, Context> {
        self.threads.get_or(|| RefCell::new(self.context())).borrow_mut()
    }

    fn context(&self) -> Context {
        let object = vec![0; KEY_BYTES + self.page_len];
        self.bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
        Context { codecs: Default::default(), object, page: Vec::new() }
    }

    /// Returns the codec of `priority`.
    #[inline]
    fn codec<'a>(&self, context: &'a mut Context, priority: u8) -> &'a mut dyn Codec {
        let slot = &mut context.codecs[usize::from(priority)];
        &mut **slot.get_or_insert_with(|| {
            let CodecChoice { spec, dictionary } = &self.choices[usize::from(priority)];
            let codec = spec.context_with(self.page_len, dictionary.as_ref());
            let codec = codec.expect("tried when the store was made");
            self.bytes.fetch_add(codec.working_bytes() as u64, Ordering::Relaxed);
            codec
        })
    }

    /// Compresses `page` with the codec of `priority` into the context's object, behind `header`
    /// bytes of it, if it takes at most `len_max` bytes; returns the length.
    #[inline]
    pub(crate) fn compress(
        &self,
        context: &mut Context,
        priority: u8,
        page: &[u8],
        header: usize,
        len_max: usize,
    ) -> Option<usize> {
        let mut object = std::mem::take(&mut context.object);
        let codec = self.codec(context, priority);
        let len = codec.compress(page, &mut object[header..header + len_max]);
        context.object = object;
        len
    }

    /// Decompresses `bytes`, which the codec of `priority` has written.
    ///
    /// # Errors
    /// When the bytes are not a page. A priority that the store does not have is such a case.
    #[inline]
    pub(crate) fn decompress(
        &self,
        priority: u8,
        bytes: &[u8],
        page: &mut [u8],
    ) -> Result<(), DecodeError> {
        if usize::from(priority) >= self.choices.len() {
            return Err(DecodeError);
        }
        self.codec(&mut self.mine(), priority).decompress(bytes, page)
    }

    /// Takes the thread's spare page, `page_len` bytes of anything.
    pub(crate) fn take_page(&self) -> Vec<u8> {
        let mut page = std::mem::take(&mut self.mine().page);
        if page.is_empty() {
            self.bytes.fetch_add(self.page_len as u64, Ordering::Relaxed);
        }
        page.resize(self.page_len, 0);
        page
    }

    /// Puts the spare page back.
    pub(crate) fn put_page(&self, page: Vec<u8>) {
        let mut mine = self.mine();
        if mine.page.is_empty() {
            mine.page = page;
        } else {
            // Taken twice: the second was a new one.
            self.bytes.fetch_sub(self.page_len as u64, Ordering::Relaxed);
        }
    }
}

/// Returns the priority of the codec that reads what `choice` has written, if there is one: the
/// same codec with the same dictionary, whatever the levels.
pub(crate) fn reader_of(
    choices: &[CodecChoice],
    kind: crate::codec::CodecKind,
    dictionary: Option<&Dictionary>,
) -> Option<u8> {
    let reads = |choice: &CodecChoice| {
        choice.spec.kind() == kind && choice.dictionary.as_ref() == dictionary
    };
    choices.iter().position(reads).map(|priority| priority as u8)
}
