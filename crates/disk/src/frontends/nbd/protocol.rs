//! Numbers and headers of the protocol. All integers on the wire are big-endian.

/// First word of a server.
pub(super) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a server, and the first of every option.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest name that the protocol allows, in bytes.
pub(super) const MAX_NAME: usize = 4096;
/// Payload that a client may send without having asked for the server's limit.
pub(super) const COMMON_PAYLOAD: u32 = 32 << 20;

/// Flags of the greeting; the client answers with the same bits in 32.
pub(super) mod greeting {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Flags of an export.
pub(super) mod export_flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub(super) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
}

/// What a client may ask about an export.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Commands.
pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(super) mod command_flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of a structured reply.
pub(super) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
}

/// Bits of a block status in the context `base:allocation`.
pub(super) mod state {
    pub(crate) const DATA: u32 = 0;
    pub(crate) const HOLE_AND_ZERO: u32 = 3;
}

/// Name of the one metadata context.
pub(super) const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in block status replies.
pub(super) const BASE_ALLOCATION_ID: u32 = 1;

/// The head of a request; a write's payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Request {
    /// Length on the wire.
    pub(super) const LEN: usize = 28;

    /// Returns the request in `bytes`, or `None` if they do not begin like one.
    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// Returns the bytes that follow on the wire.
    pub(super) fn payload(&self) -> usize {
        if self.command == command::WRITE { self.len as usize } else { 0 }
    }
}

/// Appends the head of a simple reply.
pub(super) fn simple_reply(out: &mut Vec<u8>, cookie: u64, error: u32) {
    out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
}

/// Appends the head of a chunk of `len` bytes.
pub(super) fn chunk_head(out: &mut Vec<u8>, cookie: u64, done: bool, kind: u16, len: u32) {
    out.extend_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&u16::from(done).to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
}

/// Appends a reply to an option.
pub(super) fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Integers and strings at the front of what is left; each is `None` where too little is left.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A 32-bit length and as many bytes of text.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(first)
    }
}
