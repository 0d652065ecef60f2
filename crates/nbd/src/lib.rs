//! The numbers of the NBD protocol, and the head of its requests. All integers on the wire are
//! big-endian.
//!
//! Of the protocol's document (`doc/proto.md` of the NBD project): what zfold's server, its client
//! or a test of theirs uses. Names are those of the document without the prefix that their module
//! stands for: `NBD_OPT_GO` is [`option::GO`]. The server and the client that tests use take their
//! numbers from here, too, so a wrong one is found by the clients and servers of others that the
//! tests of `zfold-disk` run.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "constants have the names that the protocol gives them")]

/// First word of a server.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a server, and the first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest name that the protocol allows, in bytes.
pub const MAX_NAME: usize = 4096;
/// Most bytes of a request's payload where the server has not named another limit.
pub const COMMON_PAYLOAD: u32 = 32 << 20;

/// Flags of the greeting; the client answers with the same bits in 32.
pub mod greeting {
    pub const FIXED_NEWSTYLE: u16 = 1;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Flags of an export.
pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of the handshake.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in every type that refuses the option.
    pub const ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR + 1;
    pub const POLICY: u32 = ERROR + 2;
    pub const INVALID: u32 = ERROR + 3;
    pub const PLATFORM: u32 = ERROR + 4;
    pub const TLS_REQUIRED: u32 = ERROR + 5;
    pub const UNKNOWN: u32 = ERROR + 6;
}

/// The information that a client may request about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of a structured reply.
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Numbers of errors in replies.
pub mod error {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const ESHUTDOWN: u32 = 108;
}

/// Bits of a block status in the context [`BASE_ALLOCATION`].
pub mod state {
    pub const DATA: u32 = 0;
    pub const HOLE_AND_ZERO: u32 = 3;
}

/// Name of the metadata context that says which ranges hold data.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The head of a request; a write's payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of [`command_flag`].
    pub flags: u16,
    /// One of [`command`].
    pub command: u16,
    /// The number by which the reply is recognised.
    pub cookie: u64,
    /// First byte of the export.
    pub offset: u64,
    /// The length of the read, write, discard or query.
    pub len: u32,
}

impl Request {
    /// Length on the wire.
    pub const LEN: usize = 28;

    /// Returns the request in `bytes`, or `None` if they do not begin like one.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        (word(0) == REQUEST_MAGIC).then(|| Self {
            flags: (word(4) >> 16) as u16,
            command: word(4) as u16,
            cookie: long(8),
            offset: long(16),
            len: word(24),
        })
    }

    /// Returns the request as it is sent.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Returns the bytes that follow on the wire.
    pub fn payload(&self) -> usize {
        if self.command == command::WRITE { self.len as usize } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        let sent = b"\x25\x60\x95\x13\x00\x11\x00\x06cookie!!\0\0\0\x01\0\0\x10\0\0\0\x02\0";
        let flags = command_flag::FUA | command_flag::FAST_ZERO;
        let cookie = u64::from_be_bytes(*b"cookie!!");
        let command = command::WRITE_ZEROES;
        let request = Request { flags, command, cookie, offset: (1 << 32) + 4096, len: 512 };
        assert_eq!(Request::parse(sent), Some(request));
        assert_eq!(&request.to_bytes(), sent);
        assert_eq!((request.payload(), Request { command: 1, ..request }.payload()), (0, 512));
    }

    #[test]
    fn other_bytes_are_no_request() {
        let mut bytes = Request { flags: 0, command: 0, cookie: 0, offset: 0, len: 0 }.to_bytes();
        bytes[3] ^= 1;
        assert_eq!(Request::parse(&bytes), None);
    }
}
