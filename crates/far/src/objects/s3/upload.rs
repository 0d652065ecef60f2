//! Writing an object in parts, and going on where a write was interrupted.
//!
//! S3 keeps the parts of an upload until it is completed or aborted, for a client that knows its
//! id. The id and the acknowledged parts are in a list beside the object (`parts.rs`). A part is
//! not sent that the list has with the same SHA-256.
//!
//! - K1: the object appears, or is replaced, when the upload is completed, as a whole: with the
//!   tags of the parts as they were cut here, in order. A server that has another part refuses.
//! - K2: the first part is always sent: whether the server takes it shows whether it still knows
//!   the upload. If it does not take it, a new one begins, of which nothing is there.
//! - K3: a part is in the list only after it was acknowledged. The list may lack some; these are
//!   sent again.
//! - K4: the completed object has the length that was written and its last bytes; otherwise it is
//!   an error. This also shows whether a completion whose answer was lost was carried out.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use object_store::multipart::{MultipartStore as _, PartId};
use object_store::{GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, PutPayload};
use ring::digest::{SHA256, digest};
use tokio::task::{JoinError, JoinSet};

use super::parts::{LIST_MAX, PARTS_MAX, Part, Parts, Sum};
use super::target::{ATTEMPT, PATIENCE, PAUSE, Target, insist, may_pass, stream_error};
use crate::engine::EngineError;
use crate::object::{ObjectWrite, Written};

/// Length of the first parts, which are of at least 5 MiB; each [`STEP`] parts they double, so that
/// an object can have 290 GiB.
const PART: usize = 8 << 20;
const STEP: usize = PARTS_MAX / 4;

/// The most parts on their way.
const WINDOW: usize = 4;

/// How many of the last bytes are compared with the completed object (K4).
const TAIL: usize = 64;

/// How long completing may take: a server may copy all parts.
const COMPLETE: Duration = Duration::from_secs(600);

/// How long a server may report a temporary failure before that is taken to mean that it knows no
/// such upload.
const BUSY: Duration = Duration::from_secs(10);

/// A part that was sent, and the server's tag for it.
type Sent = (usize, Sum, Result<PartId, EngineError>);

/// An object that is being written.
pub(super) struct Upload<'a> {
    object: &'a Target,
    /// The parts that the server has, as far as is known.
    parts: Parts,
    /// Whether that was read from a list.
    resumed: bool,
    /// Bytes that are in no part yet.
    buffer: Vec<u8>,
    /// Number of the next part.
    number: usize,
    under_way: JoinSet<Sent>,
    /// Parts that the list beside the object does not have yet.
    unlisted: usize,
    tail: Vec<u8>,
    written: Written,
}

impl<'a> Upload<'a> {
    /// Goes on with the upload whose list lies beside the object, or begins one.
    pub(super) fn begin(object: &'a Target) -> Result<Self, EngineError> {
        let (parts, resumed) = match read_list(object)? {
            Some(parts) => (parts, true),
            None => (begin_parts(object)?, false),
        };
        Ok(Self {
            object,
            parts,
            resumed,
            buffer: Vec::new(),
            number: 0,
            under_way: JoinSet::new(),
            unlisted: 0,
            tail: Vec::new(),
            written: Written::default(),
        })
    }

    /// Sends what is in the buffer as the next part, unless it is there.
    fn send(&mut self) -> Result<(), EngineError> {
        if self.number == PARTS_MAX {
            let what = "it is too long for S3 in parts of this length: save to a file";
            return Err(EngineError::Refused(what.to_owned()));
        }
        let (number, bytes) = (self.number, mem::take(&mut self.buffer));
        let sum = digest(&SHA256, &bytes).as_ref().try_into().expect("SHA-256 has 32 bytes");
        self.number += 1;
        if number > 0 && self.parts.has(number, &sum) {
            return Ok(());
        }
        self.written.sent_bytes += bytes.len() as u64;
        let payload = PutPayload::from(bytes);
        if number == 0 {
            return self.send_first(sum, payload);
        }
        while let Some(sent) = self.under_way.try_join_next() {
            self.joined(sent)?;
        }
        while self.under_way.len() >= WINDOW {
            self.acknowledged()?;
        }
        let sent = self.sent(number, sum, payload);
        self.under_way.spawn_on(sent, self.object.bucket.threads());
        Ok(())
    }

    /// Sends the first part, and begins another upload if the server does not take it for the one
    /// that was listed (K2).
    fn send_first(&mut self, sum: Sum, payload: PutPayload) -> Result<(), EngineError> {
        if self.resumed {
            let (bucket, key) = (&self.object.bucket, &self.object.key);
            let until = Instant::now() + BUSY;
            loop {
                let put = bucket.store().put_part(key, &self.parts.upload, 0, payload.clone());
                match bucket.call(Instant::now() + ATTEMPT, put) {
                    Ok(tag) => return self.enter((0, sum, Ok(tag))),
                    Err(EngineError::Late) => break,
                    Err(error) if may_pass(&error) && Instant::now() < until => {
                        thread::sleep(PAUSE);
                    }
                    // Not only servers that know no such upload: servers differ in how they say
                    // that.
                    Err(_) => {
                        let abort = bucket.store().abort_multipart(key, &self.parts.upload);
                        // If it exists all the same, its parts are no longer known.
                        let _ = bucket.call(Instant::now() + ATTEMPT, abort);
                        self.parts = begin_parts(self.object)?;
                        break;
                    }
                }
            }
        }
        let sent = self.sent(0, sum, payload);
        let sent = self.object.bucket.threads().block_on(sent);
        self.enter(sent)
    }

    /// Sends a part, again and again for a while.
    fn sent(
        &self,
        number: usize,
        sum: Sum,
        payload: PutPayload,
    ) -> impl Future<Output = Sent> + Send + use<> {
        let (store, key) = (Arc::clone(self.object.bucket.store()), self.object.key.clone());
        let upload = self.parts.upload.clone();
        async move {
            let put = || store.put_part(&key, &upload, number, payload.clone());
            (number, sum, insist(put).await)
        }
    }

    /// Waits until a part on its way is acknowledged.
    fn acknowledged(&mut self) -> Result<(), EngineError> {
        let next = self.object.bucket.threads().block_on(self.under_way.join_next());
        next.map_or(Ok(()), |sent| self.joined(sent))
    }

    fn joined(&mut self, sent: Result<Sent, JoinError>) -> Result<(), EngineError> {
        self.enter(sent.map_err(|error| EngineError::Unreachable(error.to_string()))?)
    }

    /// Notes that a part was acknowledged, and writes the list when it lacks a 64th (K3).
    fn enter(&mut self, (number, sum, tag): Sent) -> Result<(), EngineError> {
        let tag = tag.map_err(|error| match error {
            EngineError::Missing => {
                EngineError::Refused("the upload was removed meanwhile; save again".to_owned())
            }
            error => error,
        })?;
        self.parts.enter(number, Part { sum, tag: tag.content_id });
        self.unlisted += 1;
        if self.unlisted > self.number / 64 {
            write_list(self.object, &self.parts)?;
            self.unlisted = 0;
        }
        Ok(())
    }

    /// Sends the rest and completes the upload (K1, K4).
    fn finish(&mut self) -> Result<(), EngineError> {
        if !self.buffer.is_empty() || self.number == 0 {
            self.send()?;
        }
        while !self.under_way.is_empty() {
            self.acknowledged()?;
        }
        let tags = self.parts.tags(self.number).ok_or(EngineError::Missing)?;
        let parts = tags.into_iter().map(|content_id| PartId { content_id });
        let (bucket, key) = (&self.object.bucket, &self.object.key);
        let parts: Vec<_> = parts.collect();
        let begun = Instant::now();
        let (completed, whole) = loop {
            let complete =
                bucket.store().complete_multipart(key, &self.parts.upload, parts.clone());
            let completed = bucket.call(begun + COMPLETE, complete).map(drop);
            let whole = self.is_whole();
            match &completed {
                // It may have been done all the same.
                Err(error)
                    if whole == Ok(false) && may_pass(error) && begun.elapsed() < PATIENCE =>
                {
                    thread::sleep(PAUSE);
                }
                _ => break (completed, whole),
            }
        };
        let forget = || self.object.insist(|| bucket.store().delete(&self.object.list));
        let error = match (completed, whole) {
            (_, Ok(true)) => return forget(),
            (Err(error), _) | (Ok(()), Err(error)) => error,
            (Ok(()), Ok(false)) => EngineError::Refused(
                "the parts that it joined differ from what was sent".to_owned(),
            ),
        };
        if !may_pass(&error) {
            // The server has other parts than are listed: none is believed again.
            let _ = forget();
        }
        Err(error)
    }

    /// Returns whether the object has the length and the end of what was written (K4).
    fn is_whole(&self) -> Result<bool, EngineError> {
        let Some(found) = self.object.head()? else { return Ok(false) };
        if found.size != self.written.bytes {
            return Ok(false);
        }
        let (bucket, key) = (&self.object.bucket, &self.object.key);
        let range = found.size - self.tail.len() as u64..found.size;
        if range.is_empty() {
            return Ok(true);
        }
        let end = self.object.insist(|| bucket.store().get_range(key, range.clone()))?;
        Ok(end[..] == self.tail[..])
    }
}

/// Returns how long a part is.
fn part_bytes(number: usize) -> usize {
    PART << (number / STEP)
}

/// Begins an upload, of which nothing is there.
fn begin_parts(object: &Target) -> Result<Parts, EngineError> {
    let upload = object.insist(|| object.bucket.store().create_multipart(&object.key))?;
    let parts = Parts::new(upload);
    write_list(object, &parts)?;
    Ok(parts)
}

/// Reads the list beside an object; none if there is none.
fn read_list(object: &Target) -> Result<Option<Parts>, EngineError> {
    let store = object.bucket.store();
    let get = || async {
        // Another writer to the bucket can have put something else there.
        let range = Some(GetRange::Bounded(0..LIST_MAX as u64));
        let options = GetOptions { range, ..GetOptions::default() };
        let got = store.get_opts(&object.list, options).await?;
        Ok((got.meta.size, got.bytes().await?))
    };
    match object.insist(get) {
        Ok((size, _)) if size > LIST_MAX as u64 => Err(EngineError::Refused(format!(
            "{} beside it has {size} bytes and is no list of parts: remove it, or save under \
             another name",
            object.list
        ))),
        Ok((_, bytes)) => Ok(str::from_utf8(&bytes).ok().and_then(Parts::parse)),
        Err(EngineError::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_list(object: &Target, parts: &Parts) -> Result<(), EngineError> {
    let text = parts.text();
    if text.len() > LIST_MAX {
        let what = "its names for parts are too long to be kept: save to a file";
        return Err(EngineError::Refused(what.to_owned()));
    }
    let text = PutPayload::from(text);
    object.insist(|| object.bucket.store().put(&object.list, text.clone())).map(drop)
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let full = part_bytes(self.number);
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(full);
        }
        let taken = &bytes[..bytes.len().min(full - self.buffer.len())];
        self.buffer.extend_from_slice(taken);
        self.tail.extend_from_slice(&taken[taken.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
        self.written.bytes += taken.len() as u64;
        if self.buffer.len() == full {
            self.send().map_err(stream_error)?;
        }
        Ok(taken.len())
    }

    /// Does nothing: parts are sent when they are full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ObjectWrite for Upload<'_> {
    fn complete(mut self: Box<Self>) -> io::Result<Written> {
        self.finish().map_err(stream_error)?;
        Ok(self.written)
    }

    fn abort(mut self: Box<Self>) -> io::Result<()> {
        self.under_way.abort_all();
        let (object, upload) = (self.object, &self.parts.upload);
        let aborted = object
            .insist(|| object.bucket.store().abort_multipart(&object.key, upload))
            .and_then(|()| object.insist(|| object.bucket.store().delete(&object.list)));
        aborted.map_err(stream_error)
    }
}
