//! One connection to an export: the handshake, then rows of requests, each by a deadline.
//!
//! Only what is needed of the protocol: fixed newstyle with `NBD_OPT_GO`, and simple replies, in
//! any order. What an error reply is to a request, `Refused`, leaves the connection good. No more
//! is read than requests ask for (tcp/R9).
//!
//! - R2: a connection on which something else went wrong is not used again: what it would read next
//!   may belong to a request that was given up.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::engine::EngineError;
use crate::engines::said::short;
use crate::engines::tcp::Timed;
use crate::place::NbdPlace;

const MAGIC: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

/// The greeting's flag for a handshake with options, and the one that leaves zeros out.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPTION_GO: u32 = 7;
const OPTION_ACK: u32 = 1;
const OPTION_INFO: u32 = 3;
const OPTION_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const READ_ONLY: u16 = 1 << 1;
const SEND_TRIM: u16 = 1 << 5;
const CAN_MULTI_CONN: u16 = 1 << 8;

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_TRIM: u16 = 4;

/// Longest reply to an option that is believed.
const OPTION_MAX: u32 = 64 << 10;

/// Most that a server takes or sends in one request, unless it says another number.
const PAYLOAD: u32 = 32 << 20;

/// How long a connection may be unused and is believed to be open.
const FRESH: Duration = Duration::from_secs(1);

/// Why requests did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No answer by the deadline.
    Late,
    /// The connection is gone, or there was none, or what came is not the protocol.
    Lost(String),
    /// The server will not. What it says.
    Refused(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Late,
            io::ErrorKind::UnexpectedEof => Self::Lost("the connection was closed".to_owned()),
            _ => Self::Lost(error.to_string()),
        }
    }
}

impl From<Trouble> for EngineError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Late => Self::Late,
            Trouble::Lost(why) => Self::Unreachable(why),
            Trouble::Refused(why) => Self::Refused(why),
        }
    }
}

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    pub(super) read_only: bool,
    pub(super) trims: bool,
    /// What one connection has written another one reads.
    pub(super) many: bool,
    /// What offsets and lengths are multiples of, a power of two.
    pub(super) block: u32,
    /// Most bytes of one request.
    pub(super) payload: u32,
}

/// What is asked of an export.
#[derive(Debug)]
pub(super) enum Job<'a> {
    Read(u64, &'a mut [u8]),
    Write(u64, &'a [u8]),
    Trim(u64, u32),
}

/// A connection on which nothing is under way.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Timed,
    cookie: u64,
    used: Instant,
}

impl Connection {
    /// Connects to the export of `place`.
    pub(super) fn open(place: &NbdPlace, deadline: Instant) -> Result<(Self, Export), Trouble> {
        Self::over(Timed::connect(&place.server, deadline)?, &place.export)
    }

    /// Opens an export over a new connection.
    pub(super) fn over(stream: Timed, export: &str) -> Result<(Self, Export), Trouble> {
        let mut link = Self { stream, cookie: 0, used: Instant::now() };
        let export = link.shake_hands(export)?;
        Ok((link, export))
    }

    fn shake_hands(&mut self, name: &str) -> Result<Export, Trouble> {
        let mut magic = [0; 16];
        self.stream.read_exact(&mut magic)?;
        let flags = self.u16()?;
        if magic != *MAGIC || flags & FIXED_NEWSTYLE == 0 {
            return Err(Trouble::Refused("it speaks no NBD with options".to_owned()));
        }
        let mut out = Vec::new();
        out.extend_from_slice(&u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes());
        out.extend_from_slice(&MAGIC[8..]);
        out.extend_from_slice(&OPTION_GO.to_be_bytes());
        let len = name.len() as u32;
        out.extend_from_slice(&(len + 8).to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
        self.stream.write_all(&out)?;
        let mut export = None;
        let (mut block, mut payload) = (1, PAYLOAD);
        loop {
            let (magic, option, kind, len) = (self.u64()?, self.u32()?, self.u32()?, self.u32()?);
            if magic != OPTION_REPLY || option != OPTION_GO || len > OPTION_MAX {
                return Err(strange());
            }
            let mut data = vec![0; len as usize];
            self.stream.read_exact(&mut data)?;
            match (kind, data.first_chunk().map(|kind| u16::from_be_bytes(*kind))) {
                (OPTION_ACK, _) => break,
                (OPTION_INFO, Some(INFO_EXPORT)) if data.len() == 12 => {
                    let size = u64::from_be_bytes(data[2..10].try_into().expect("8 bytes"));
                    let flags = u16::from_be_bytes(data[10..].try_into().expect("2 bytes"));
                    export = Some((size, flags));
                }
                (OPTION_INFO, Some(INFO_BLOCK_SIZE)) if data.len() == 14 => {
                    block = u32::from_be_bytes(data[2..6].try_into().expect("4 bytes"));
                    payload = u32::from_be_bytes(data[10..].try_into().expect("4 bytes"));
                }
                (OPTION_INFO, _) => {}
                (kind, _) if kind & OPTION_ERROR != 0 => {
                    return Err(refusal(kind & !OPTION_ERROR, &data));
                }
                _ => return Err(strange()),
            }
        }
        let (size, flags) = export.ok_or_else(strange)?;
        Ok(Export {
            size,
            read_only: flags & READ_ONLY != 0,
            trims: flags & SEND_TRIM != 0,
            many: flags & CAN_MULTI_CONN != 0,
            block,
            payload: payload.min(PAYLOAD),
        })
    }

    /// Sends all requests and waits for all replies.
    ///
    /// # Errors
    /// The first that is `Refused`, after all replies; another trouble at once (R2).
    pub(super) fn run(&mut self, jobs: &mut [Job<'_>], deadline: Instant) -> Result<(), Trouble> {
        self.stream.deadline = deadline;
        let first = self.cookie;
        self.cookie += jobs.len() as u64;
        // Replies have 16 bytes, and what is read.
        self.stream.allowed = 16 * jobs.len();
        let mut out = Vec::new();
        for (job, cookie) in jobs.iter().zip(first..) {
            if let Job::Read(_, out) = job {
                self.stream.allowed += out.len();
            }
            let (command, offset, len) = match job {
                Job::Read(offset, out) => (COMMAND_READ, *offset, out.len() as u32),
                Job::Write(offset, bytes) => (COMMAND_WRITE, *offset, bytes.len() as u32),
                Job::Trim(offset, len) => (COMMAND_TRIM, *offset, *len),
            };
            out.extend_from_slice(&REQUEST.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&command.to_be_bytes());
            out.extend_from_slice(&cookie.to_be_bytes());
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&len.to_be_bytes());
            if let Job::Write(_, bytes) = job {
                self.stream.write_all(&out)?;
                self.stream.write_all(bytes)?;
                out.clear();
            }
        }
        self.stream.write_all(&out)?;
        let mut refused = None;
        let mut answered = vec![false; jobs.len()];
        for _ in 0..jobs.len() {
            let (magic, error, cookie) = (self.u32()?, self.u32()?, self.u64()?);
            let at = cookie.checked_sub(first).and_then(|at| usize::try_from(at).ok());
            let at = at.filter(|at| answered.get(*at) == Some(&false)).ok_or_else(strange)?;
            if magic != REPLY {
                return Err(strange());
            }
            answered[at] = true;
            if error != 0 {
                refused.get_or_insert_with(|| Trouble::Refused(meaning(error)));
            } else if let Job::Read(_, out) = &mut jobs[at] {
                self.stream.read_exact(out)?;
            }
        }
        self.used = Instant::now();
        refused.map_or(Ok(()), Err)
    }

    /// Returns whether the server has neither closed it nor said anything since it was used.
    pub(super) fn is_open(&self) -> bool {
        self.used.elapsed() < FRESH || self.stream.is_quiet()
    }

    fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn strange() -> Trouble {
    Trouble::Lost("what it says is not NBD".to_owned())
}

/// Tells why a server does not open an export.
fn refusal(kind: u32, said: &[u8]) -> Trouble {
    let said = String::from_utf8_lossy(said);
    let why = match kind {
        1 => "it does not know NBD_OPT_GO; use another server",
        2 | 4 => "it is not allowed to",
        5 => "it wants TLS, which zfold does not speak to it",
        6 => "there is no such export; name another",
        _ => "it does not open the export",
    };
    let said = short(&said);
    Trouble::Refused(if said.is_empty() { why.to_owned() } else { format!("{why} ({said})") })
}

/// Tells what the number of an error reply means.
fn meaning(error: u32) -> String {
    let why = match error {
        1 => "it is not permitted: let it serve the export for writing",
        5 => "input/output error",
        12 => "it has no memory",
        22 => "invalid request",
        28 => "no space is left there",
        108 => "it is shutting down",
        _ => return format!("error {error}"),
    };
    why.to_owned()
}
