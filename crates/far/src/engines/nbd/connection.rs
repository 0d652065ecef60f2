//! One connection to an export: the handshake, then rows of requests, each by a deadline.
//!
//! Only what is needed of the protocol: fixed newstyle with `NBD_OPT_GO`, and simple replies, in
//! any order. An error reply to a request, `Refused`, leaves the connection good. No more is read
//! than requests ask for (tcp/R9).
//!
//! - R2: a connection on which something else went wrong is not used again: what it would read next
//!   may belong to a request that was given up.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use zfold_nbd::{
    COMMON_PAYLOAD, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC, command,
    error, export_flag, greeting, info, option, reply,
};

use crate::engine::EngineError;
use crate::engines::said::short;
use crate::engines::tcp::Timed;
use crate::place::NbdPlace;

/// Longest reply to an option that is believed.
const OPTION_MAX: u32 = 64 << 10;

/// How long an unused connection is taken to be open.
const FRESH: Duration = Duration::from_secs(1);

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Late,
            io::ErrorKind::UnexpectedEof => Self::Unreachable("the connection was closed".into()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

/// A server's description of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    pub(super) read_only: bool,
    pub(super) trims: bool,
    /// One connection reads what another one has written.
    pub(super) many: bool,
    /// What offsets and lengths are multiples of, a power of two.
    pub(super) block: u32,
    /// Most bytes of one request.
    pub(super) payload: u32,
}

/// A request to an export.
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
    pub(super) fn open(place: &NbdPlace, deadline: Instant) -> Result<(Self, Export), EngineError> {
        Self::over(Timed::connect(&place.server, deadline)?, &place.export)
    }

    /// Opens an export over a new connection.
    pub(super) fn over(stream: Timed, export: &str) -> Result<(Self, Export), EngineError> {
        let mut link = Self { stream, cookie: 0, used: Instant::now() };
        let export = link.shake_hands(export)?;
        Ok((link, export))
    }

    fn shake_hands(&mut self, name: &str) -> Result<Export, EngineError> {
        let (magic, flags) = ([self.u64()?, self.u64()?], self.u16()?);
        if magic != [MAGIC, OPTION_MAGIC] || flags & greeting::FIXED_NEWSTYLE == 0 {
            return Err(EngineError::Refused("it does not speak NBD with options".to_owned()));
        }
        let mut out = Vec::new();
        let known = flags & (greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        out.extend_from_slice(&u32::from(known).to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&option::GO.to_be_bytes());
        let len = name.len() as u32;
        out.extend_from_slice(&(len + 8).to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        self.stream.write_all(&out)?;
        let mut export = None;
        let (mut block, mut payload) = (1, COMMON_PAYLOAD);
        loop {
            let (magic, option, kind, len) = (self.u64()?, self.u32()?, self.u32()?, self.u32()?);
            if magic != OPTION_REPLY_MAGIC || option != option::GO || len > OPTION_MAX {
                return Err(strange());
            }
            let mut data = vec![0; len as usize];
            self.stream.read_exact(&mut data)?;
            match (kind, data.first_chunk().map(|kind| u16::from_be_bytes(*kind))) {
                (reply::ACK, _) => break,
                (reply::INFO, Some(info::EXPORT)) if data.len() == 12 => {
                    let size = u64::from_be_bytes(data[2..10].try_into().expect("8 bytes"));
                    let flags = u16::from_be_bytes(data[10..].try_into().expect("2 bytes"));
                    export = Some((size, flags));
                }
                (reply::INFO, Some(info::BLOCK_SIZE)) if data.len() == 14 => {
                    block = u32::from_be_bytes(data[2..6].try_into().expect("4 bytes"));
                    payload = u32::from_be_bytes(data[10..].try_into().expect("4 bytes"));
                }
                (reply::INFO, _) => {}
                (kind, _) if kind & reply::ERROR != 0 => return Err(refusal(kind, &data)),
                _ => return Err(strange()),
            }
        }
        let (size, flags) = export.ok_or_else(strange)?;
        Ok(Export {
            size,
            read_only: flags & export_flag::READ_ONLY != 0,
            trims: flags & export_flag::SEND_TRIM != 0,
            many: flags & export_flag::CAN_MULTI_CONN != 0,
            block,
            payload: payload.min(COMMON_PAYLOAD),
        })
    }

    /// Sends all requests and waits for all replies.
    ///
    /// # Errors
    /// The first that is `Refused`, after all replies; another at once (R2).
    pub(super) fn run(
        &mut self,
        jobs: &mut [Job<'_>],
        deadline: Instant,
    ) -> Result<(), EngineError> {
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
                Job::Read(offset, out) => (command::READ, *offset, out.len() as u32),
                Job::Write(offset, bytes) => (command::WRITE, *offset, bytes.len() as u32),
                Job::Trim(offset, len) => (command::TRIM, *offset, *len),
            };
            let request = Request { flags: 0, command, cookie, offset, len };
            out.extend_from_slice(&request.to_bytes());
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
            if magic != SIMPLE_REPLY_MAGIC {
                return Err(strange());
            }
            answered[at] = true;
            if error != 0 {
                refused.get_or_insert_with(|| EngineError::Refused(meaning(error)));
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

fn strange() -> EngineError {
    EngineError::Unreachable("its answer is not NBD".to_owned())
}

/// Tells why a server does not open an export.
fn refusal(kind: u32, said: &[u8]) -> EngineError {
    let said = String::from_utf8_lossy(said);
    let why = match kind {
        reply::UNSUPPORTED => "it does not know NBD_OPT_GO; use another server",
        reply::POLICY | reply::PLATFORM => "it is not allowed to",
        reply::TLS_REQUIRED => "it wants TLS, which zfold does not speak to it",
        reply::UNKNOWN => "there is no such export; name another",
        _ => "it does not open the export",
    };
    let said = short(&said);
    EngineError::Refused(if said.is_empty() { why.to_owned() } else { format!("{why} ({said})") })
}

/// Tells what the number of an error reply means.
fn meaning(number: u32) -> String {
    let why = match number {
        error::EPERM => "it is not permitted: let it serve the export for writing",
        error::EIO => "input/output error",
        error::ENOMEM => "it has no memory",
        error::EINVAL => "invalid request",
        error::ENOSPC => "no space is left there",
        error::ESHUTDOWN => "it is shutting down",
        _ => return format!("error {number}"),
    };
    why.to_owned()
}
