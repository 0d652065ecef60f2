//! The handshake: fixed newstyle, options until one of them begins the transmission.
//!
//! ```text
//!   greeting -> client flags -> option -> replies -> option ... -> GO or EXPORT_NAME -> Agreed
//! ```
//!
//! - H1: everything a client sends has a limit, and so has the time of all of it together: a client
//!   that keeps a server waiting is dropped, however it goes about it.
//! - H2: STARTTLS forgets everything that was agreed on before it, and bytes that arrived with it
//!   are never taken for an encrypted client's.
//! - H3: where TLS is required, a client without it learns no export's name and no size.

use std::io::{self, IoSlice};
use std::time::Instant;

use zfold_nbd::{
    BASE_ALLOCATION, MAGIC, MAX_NAME, OPTION_MAGIC, export_flag, greeting, info, option, reply,
};

use super::channel::{Channel, Input};
use super::options::NbdOptions;
use super::protocol::{BASE_ALLOCATION_ID, Fields, option_reply};
use crate::disk::Disk;

/// Most data of an option.
const OPTION_BYTES: usize = 64 << 10;
/// Options of one handshake.
const MAX_OPTIONS: usize = 4096;
/// Block size that clients should prefer: a page of the usual size.
const MIN_PREFERRED_BLOCK: usize = 4096;

/// The agreement of client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Whether reads are answered in chunks.
    pub(super) structured: bool,
    /// Whether the client may ask for block status.
    pub(super) allocation: bool,
}

/// A handshake under way.
pub(super) struct Handshake<'a> {
    disk: &'a Disk,
    options: &'a NbdOptions,
    /// Asks for a client's place.
    admit: &'a dyn Fn() -> bool,
    channel: Channel,
    input: Input,
    no_zeroes: bool,
    structured: bool,
    /// Whether `base:allocation` was selected.
    allocation: bool,
    out: Vec<u8>,
}

/// The result of an option.
enum Step {
    Next,
    Begin(Agreed),
    End,
}

impl<'a> Handshake<'a> {
    /// Returns a handshake over a new connection.
    pub(super) fn new(
        disk: &'a Disk,
        options: &'a NbdOptions,
        admit: &'a dyn Fn() -> bool,
        (channel, input): (Channel, Input),
    ) -> Self {
        Self {
            disk,
            options,
            admit,
            channel,
            input,
            no_zeroes: false,
            structured: false,
            allocation: false,
            out: Vec::new(),
        }
    }

    /// Leads it to its end. Returns `None` if the client took its leave.
    ///
    /// # Errors
    /// Any of the socket; `InvalidData` for a client that does not speak the protocol. The
    /// connection is to be closed.
    pub(super) fn run(mut self) -> io::Result<Option<(Agreed, Channel, Input)>> {
        // A timeout without end is none.
        let deadline = Instant::now().checked_add(self.options.handshake_timeout);
        self.channel.set_deadline(deadline)?;
        let flags = greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES;
        self.out.extend_from_slice(&MAGIC.to_be_bytes());
        self.out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        self.out.extend_from_slice(&flags.to_be_bytes());
        self.send()?;
        let answer = u32::from_be_bytes(self.read()?);
        if answer & !u32::from(flags) != 0 {
            return Err(invalid("unknown client flags"));
        }
        self.no_zeroes = answer & u32::from(greeting::NO_ZEROES) != 0;
        for _ in 0..MAX_OPTIONS {
            match self.option()? {
                Step::Next => {}
                Step::End => return Ok(None),
                Step::Begin(agreed) => {
                    self.channel.set_deadline(None)?;
                    return Ok(Some((agreed, self.channel, self.input)));
                }
            }
        }
        Err(invalid("too many options"))
    }

    /// Takes one option and answers it.
    fn option(&mut self) -> io::Result<Step> {
        if u64::from_be_bytes(self.read()?) != OPTION_MAGIC {
            return Err(invalid("no option"));
        }
        let option = u32::from_be_bytes(self.read()?);
        let len = u32::from_be_bytes(self.read()?) as usize;
        if len > OPTION_BYTES {
            return Err(invalid("an option beyond the limit"));
        }
        let mut data = vec![0; len];
        self.read_into(&mut data)?;
        let secret = self.options.tls.is_required() && !self.channel.is_encrypted();
        match option {
            option::ABORT => {
                // The client may have left without waiting for it.
                let _ = self.answer(option, reply::ACK, &[]);
                Ok(Step::End)
            }
            option::STARTTLS => self.start_tls(&data),
            option::EXPORT_NAME if secret => Err(invalid("an export without TLS")),
            _ if secret => self.refuse(option, reply::TLS_REQUIRED, "this server requires TLS"),
            option::EXPORT_NAME => self.export_name(&data),
            option::LIST => self.list(&data),
            option::INFO | option::GO => self.info(option, &data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.answer(option, reply::ACK, &[])
            }
            option::STRUCTURED_REPLY => self.refuse_data(option),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, &data)
            }
            _ => self.refuse(option, reply::UNSUPPORTED, "this server does not know the option"),
        }
    }

    fn start_tls(&mut self, data: &[u8]) -> io::Result<Step> {
        let option = option::STARTTLS;
        if !data.is_empty() {
            return self.refuse_data(option);
        }
        if self.channel.is_encrypted() {
            return self.refuse(option, reply::INVALID, "TLS is already on");
        }
        let Some(config) = self.options.tls.config() else {
            return self.refuse(option, reply::POLICY, "this server has no TLS");
        };
        self.answer(option, reply::ACK, &[])?;
        self.channel.encrypt(&mut self.input, config)?;
        (self.structured, self.allocation) = (false, false);
        Ok(Step::Next)
    }

    fn export_name(&mut self, data: &[u8]) -> io::Result<Step> {
        // This option has no way to say no but to hang up.
        if data.len() > MAX_NAME || str::from_utf8(data).is_err() {
            return Err(invalid("no name"));
        }
        if !(self.admit)() {
            return Err(invalid("no place"));
        }
        let flags = self.flags().to_be_bytes();
        self.out.extend_from_slice(&self.disk.size().to_be_bytes());
        self.out.extend_from_slice(&flags);
        if !self.no_zeroes {
            self.out.extend_from_slice(&[0; 124]);
        }
        self.send()?;
        Ok(self.begin())
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Step> {
        let option = option::LIST;
        if !data.is_empty() {
            return self.refuse_data(option);
        }
        let NbdOptions { name, description, .. } = self.options;
        let len = (name.len() as u32).to_be_bytes();
        let data = [&len[..], name.as_bytes(), description.as_bytes()].concat();
        option_reply(&mut self.out, option, reply::SERVER, &data);
        self.answer(option, reply::ACK, &[])
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        let Some(wanted) = parse_info(data) else {
            return self.refuse(option, reply::INVALID, "the request is malformed");
        };
        if option == option::GO && !(self.admit)() {
            return self.refuse(option, reply::POLICY, "all places are taken; try again later");
        }
        let NbdOptions { name, description, .. } = self.options;
        let mut info = |kind: u16, fields: &[&[u8]]| {
            let data = [&[&kind.to_be_bytes()[..]], fields].concat().concat();
            option_reply(&mut self.out, option, reply::INFO, &data);
        };
        if wanted.contains(&info::NAME) {
            info(info::NAME, &[name.as_bytes()]);
        }
        if wanted.contains(&info::DESCRIPTION) && !description.is_empty() {
            info(info::DESCRIPTION, &[description.as_bytes()]);
        }
        let preferred = self.disk.page_len().max(MIN_PREFERRED_BLOCK) as u32;
        let sizes = [1, preferred, self.options.max_request()].map(u32::to_be_bytes);
        info(info::BLOCK_SIZE, &[sizes.as_flattened()]);
        let flags = self.flags().to_be_bytes();
        let size = self.disk.size().to_be_bytes();
        let data = [&info::EXPORT.to_be_bytes()[..], &size, &flags].concat();
        option_reply(&mut self.out, option, reply::INFO, &data);
        self.answer(option, reply::ACK, &[])?;
        Ok(if option == option::GO { self.begin() } else { Step::Next })
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) -> io::Result<Step> {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            // Whatever happens, the earlier selection is gone.
            self.allocation = false;
        }
        let Some(queries) = parse_queries(data) else {
            return self.refuse(option, reply::INVALID, "the queries are malformed");
        };
        if setting && !self.structured {
            return self.refuse(option, reply::INVALID, "negotiate structured replies first");
        }
        let all = !setting && (queries.is_empty() || queries.contains(&"base:"));
        if all || queries.contains(&BASE_ALLOCATION) {
            let id = if setting { BASE_ALLOCATION_ID } else { 0 };
            let data = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
            option_reply(&mut self.out, option, reply::META_CONTEXT, &data);
            self.allocation |= setting;
        }
        self.answer(option, reply::ACK, &[])
    }

    fn begin(&self) -> Step {
        Step::Begin(Agreed { structured: self.structured, allocation: self.allocation })
    }

    fn flags(&self) -> u16 {
        let mut flags = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_CACHE
            // A flush covers what any connection wrote: there is one device and no cache above it.
            | export_flag::CAN_MULTI_CONN;
        if self.structured {
            flags |= export_flag::SEND_DF;
        }
        flags
            | if self.disk.read_only() {
                export_flag::READ_ONLY
            } else {
                export_flag::SEND_TRIM
                    | export_flag::SEND_WRITE_ZEROES
                    | export_flag::SEND_FAST_ZERO
            }
    }

    fn refuse(&mut self, option: u32, kind: u32, why: &str) -> io::Result<Step> {
        self.answer(option, kind, why.as_bytes())
    }

    fn refuse_data(&mut self, option: u32) -> io::Result<Step> {
        self.refuse(option, reply::INVALID, "the option takes no data")
    }

    /// Sends the last reply to an option, with those before it.
    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<Step> {
        option_reply(&mut self.out, option, kind, data);
        self.send()?;
        Ok(Step::Next)
    }

    fn send(&mut self) -> io::Result<()> {
        self.channel.send_all(&mut [IoSlice::new(&self.out)])?;
        self.out.clear();
        Ok(())
    }

    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&mut self, out: &mut [u8]) -> io::Result<()> {
        while self.input.buffered().len() < out.len() {
            self.fill()?;
        }
        self.input.read_exact(&self.channel, out)
    }

    fn fill(&mut self) -> io::Result<()> {
        match self.input.fill(&self.channel)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the wanted items of INFO or GO.
fn parse_info(data: &[u8]) -> Option<Vec<u16>> {
    let mut fields = Fields(data);
    fields.string().filter(|name| name.len() <= MAX_NAME)?;
    let count = fields.u16()?;
    let wanted = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>()?;
    fields.0.is_empty().then_some(wanted)
}

/// Returns the queries of LIST or SET_META_CONTEXT.
fn parse_queries(data: &[u8]) -> Option<Vec<&str>> {
    let mut fields = Fields(data);
    fields.string().filter(|name| name.len() <= MAX_NAME)?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.string().filter(|query| query.len() <= MAX_NAME)?);
    }
    fields.0.is_empty().then_some(queries)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
