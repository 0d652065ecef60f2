//! One request after the other: from its head and payload to the bytes of its reply.

use zfold_nbd::error::{EINVAL, EIO, ENOSPC, EPERM, ESHUTDOWN};
use zfold_nbd::{Request, chunk, command, command_flag, state};

use crate::disk::{Disk, ExtentKind, Holes};
use crate::error::IoError;

use super::activity::Activity;
use super::protocol::{BASE_ALLOCATION_ID, chunk_head, simple_reply};

/// Runs of bytes that one block status names at most.
const STATUS_EXTENTS: usize = 4096;
/// Runs of bytes that one read is cut into at most; the rest is sent as data.
const READ_EXTENTS: usize = 256;

/// Why a request is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The device did not serve it.
    Io(IoError),
    /// A flag that the command does not have.
    Flags,
    /// A command that this server does not know, or that was not agreed on.
    Command,
    /// More bytes than the server takes in one request.
    TooLong,
    /// No bytes, where there have to be some.
    Empty,
    /// The connection broke before it was begun (fence/F1).
    Broken,
}

impl From<IoError> for Refusal {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl Refusal {
    /// Returns the protocol's error number for it.
    fn code(self, command: u16) -> u32 {
        match self {
            // The protocol wants writes beyond the end to fail as on a full disk.
            Self::Io(IoError::OutOfRange { .. })
                if matches!(command, command::WRITE | command::WRITE_ZEROES) =>
            {
                ENOSPC
            }
            Self::Io(IoError::ReadOnly) => EPERM,
            Self::Io(IoError::NoSpace) => ENOSPC,
            Self::Io(IoError::Io) => EIO,
            Self::Io(IoError::Closed) | Self::Broken => ESHUTDOWN,
            _ => EINVAL,
        }
    }

    fn message(self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::Flags => "the command does not have this flag".into(),
            Self::Command => "the command is unknown or was not negotiated".into(),
            Self::TooLong => "the request is longer than the server's limit".into(),
            Self::Empty => "the request covers no bytes".into(),
            Self::Broken => "the connection was closed before the request was begun".into(),
        }
    }
}

/// Answers the requests of one connection.
#[derive(Debug)]
pub(super) struct Responder<'a> {
    pub(super) disk: &'a Disk,
    pub(super) structured: bool,
    pub(super) allocation: bool,
    /// Longest read in bytes.
    pub(super) max_request: u32,
    /// The record of when the device works on a request.
    pub(super) activity: &'a Activity,
}

impl Responder<'_> {
    /// Serves `request`, which came with `payload`, and appends the reply to `out`. Returns
    /// whether it succeeded.
    pub(super) fn answer(&self, request: &Request, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let busy = self.activity.begin(changes(request));
        let served = match busy {
            Some(_) => self.check(request).and_then(|()| self.run(request, payload, out)),
            None => Err(Refusal::Broken),
        };
        if let Err(refusal) = served {
            // Whatever was prepared is not true.
            out.truncate(begin);
            self.refuse(request, refusal, out);
        }
        served.is_ok()
    }

    /// Appends the reply to a request that is not served.
    pub(super) fn refuse(&self, request: &Request, refusal: Refusal, out: &mut Vec<u8>) {
        let code = refusal.code(request.command);
        if !self.structured {
            return simple_reply(out, request.cookie, code);
        }
        let message = refusal.message();
        let len = 4 + 2 + message.len();
        chunk_head(out, request.cookie, true, chunk::ERROR, len as u32);
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(&(message.len() as u16).to_be_bytes());
        out.extend_from_slice(message.as_bytes());
    }

    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let allowed = match request.command {
            command::READ if self.structured => command_flag::DF,
            command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => 0,
        };
        // Clients are known to send FUA with any command.
        if request.flags & !(allowed | command_flag::FUA) != 0 {
            return Err(Refusal::Flags);
        }
        match request.command {
            command::READ if request.len > self.max_request => Err(Refusal::TooLong),
            _ => Ok(()),
        }
    }

    fn run(&self, request: &Request, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let disk = self.disk;
        let (offset, len) = (request.offset, u64::from(request.len));
        match request.command {
            command::READ if self.structured => return self.read_structured(request, out),
            command::READ => {
                simple_reply(out, request.cookie, 0);
                return self.read(offset, request.len, out);
            }
            command::BLOCK_STATUS if self.allocation => return self.block_status(request, out),
            command::WRITE => disk.write(offset, payload)?,
            command::TRIM => disk.discard(offset, len)?,
            command::WRITE_ZEROES => {
                let no_hole = request.flags & command_flag::NO_HOLE != 0;
                disk.write_zeroes(offset, len, if no_hole { Holes::Forbid } else { Holes::Allow })?;
            }
            command::FLUSH => disk.flush()?,
            // Pages are in memory already.
            command::CACHE => {
                let size = disk.size();
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    return Err(IoError::OutOfRange { offset, len, size }.into());
                }
            }
            _ => return Err(Refusal::Command),
        }
        if changes(request) && request.flags & command_flag::FUA != 0 {
            disk.flush()?;
        }
        simple_reply(out, request.cookie, 0);
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let _busy = self.activity.begin(false).ok_or(Refusal::Broken)?;
        let begin = out.len();
        out.resize(begin + len as usize, 0);
        Ok(self.disk.read(offset, &mut out[begin..])?)
    }

    fn read_structured(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), Refusal> {
        match request.flags & command_flag::DF != 0 || request.len == 0 {
            true => self.read_whole(request, out),
            false => self.read_chunks(request, true, out),
        }
    }

    /// Sends holes as such, and only what holds data as data; if `done`, the reply ends with it.
    pub(super) fn read_chunks(
        &self,
        request: &Request,
        done: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Request { cookie, offset, len, .. } = *request;
        let runs = self.disk.extents(offset, len.into(), READ_EXTENTS)?;
        let (mut at, end) = (offset, offset + u64::from(len));
        let mut runs = runs.iter().peekable();
        while let Some(run) = runs.next() {
            let last = runs.peek().is_none();
            // The part that the limit cut off counts as data.
            let hole = run.kind != ExtentKind::Data && (!last || at + run.len == end);
            let until = if last { end } else { at + run.len };
            let run_len = (until - at) as u32;
            if hole {
                chunk_head(out, cookie, last && done, chunk::OFFSET_HOLE, 12);
                out.extend_from_slice(&at.to_be_bytes());
                out.extend_from_slice(&run_len.to_be_bytes());
            } else {
                chunk_head(out, cookie, last && done, chunk::OFFSET_DATA, 8 + run_len);
                out.extend_from_slice(&at.to_be_bytes());
                self.read(at, run_len, out)?;
            }
            at = until;
        }
        Ok(())
    }

    /// Sends everything as one chunk of data.
    fn read_whole(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let Request { cookie, offset, len, .. } = *request;
        if len == 0 {
            self.disk.read(offset, &mut [])?;
            chunk_head(out, cookie, true, chunk::NONE, 0);
            return Ok(());
        }
        chunk_head(out, cookie, true, chunk::OFFSET_DATA, 8 + len);
        out.extend_from_slice(&offset.to_be_bytes());
        self.read(offset, len, out)
    }

    fn block_status(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), Refusal> {
        if request.len == 0 {
            return Err(Refusal::Empty);
        }
        let one = request.flags & command_flag::REQ_ONE != 0;
        let limit = if one { 1 } else { STATUS_EXTENTS };
        let runs = self.disk.extents(request.offset, request.len.into(), limit)?;
        let mut states: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
        for run in runs {
            // A page of zeros takes no room either, so there is nothing to gain from telling the
            // two apart.
            let state = match run.kind {
                ExtentKind::Hole | ExtentKind::Zero => state::HOLE_AND_ZERO,
                ExtentKind::Data => state::DATA,
            };
            match states.last_mut() {
                Some(last) if last.1 == state => last.0 += run.len as u32,
                _ => states.push((run.len as u32, state)),
            }
        }
        let len = 4 + 8 * states.len();
        chunk_head(out, request.cookie, true, chunk::BLOCK_STATUS, len as u32);
        out.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
        for (len, state) in states {
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&state.to_be_bytes());
        }
        Ok(())
    }
}

/// Returns whether a request changes the device.
fn changes(request: &Request) -> bool {
    matches!(request.command, command::WRITE | command::TRIM | command::WRITE_ZEROES)
}

/// Returns what a request holds of the connection's budget until its reply is sent.
pub(super) fn weight(request: &Request, max_request: u32) -> u64 {
    /// Heads, messages and bookkeeping.
    const FIXED: u64 = 512;
    FIXED
        + match request.command {
            command::BLOCK_STATUS => STATUS_EXTENTS as u64 * 8,
            // To be refused.
            _ if request.len > max_request => 0,
            // Chunk heads beside the data.
            command::READ => u64::from(request.len) + READ_EXTENTS as u64 * 32,
            command::WRITE => u64::from(request.len),
            _ => 0,
        }
}

/// Returns whether a request may take long: another thread should go on reading meanwhile.
pub(super) fn is_long(request: &Request) -> bool {
    /// Bytes that are compressed within tens of microseconds.
    const SHORT_BYTES: u32 = 64 << 10;
    match request.command {
        command::READ | command::WRITE => request.len >= SHORT_BYTES,
        command::CACHE => false,
        _ => true,
    }
}
