//! The messages of cloud-hypervisor's local migration, as bytes.
//!
//! ```text
//!   request   u16 command | u16 version (Start) | 4 bytes | u64 length of the payload
//!   answer    u16 status: 1 done, 2 refused     | 6 bytes | u64 length of the payload
//!   role      u16, first on a further connection: 2, page faults
//!   fault     u64 address of the guest | u64 length: payload of PageFault
//! ```
//!
//! All numbers are little-endian. The numbers are those of cloud-hypervisor's documentation and of
//! `vm-migration/src/protocol.rs` (v53); this is not that code.

use thiserror::Error;

/// Bytes of a request and of an answer, without payload.
pub(super) const HEADER: usize = 16;

/// Bytes of a fault.
pub(super) const FAULT: usize = 16;

/// Bytes of the number of a slot: the payload of `MemoryFd`.
pub(super) const SLOT: usize = 4;

/// The first bytes of a connection for page faults.
pub(super) const ROLE_FAULT: [u8; 2] = 2_u16.to_le_bytes();

/// The version of the protocol that zfold speaks.
const VERSION: u16 = 0;

/// What a peer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Start,
    Config,
    State,
    Memory,
    Complete,
    Abandon,
    MemoryFd,
    CompletePaused,
    PageFault,
}

const COMMANDS: [Command; 9] = [
    Command::Start,
    Command::Config,
    Command::State,
    Command::Memory,
    Command::Complete,
    Command::Abandon,
    Command::MemoryFd,
    Command::CompletePaused,
    Command::PageFault,
];

impl Command {
    /// Returns its number: those of `COMMANDS` are 1, 2, ...
    fn number(self) -> u16 {
        self as u16 + 1
    }
}

/// Why what a VMM has sent makes no sense, in a line.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Refused(pub(super) String);

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) command: Command,
    /// Bytes of the payload.
    pub(super) len: u64,
}

impl Request {
    pub(super) fn new(command: Command, len: u64) -> Self {
        Self { command, len }
    }

    pub(super) fn encode(self) -> [u8; HEADER] {
        // The version of `Start` is 0, as is what other commands have there.
        header(self.command.number(), self.len)
    }

    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Refused> {
        let number = short(bytes, 0);
        let command = COMMANDS.into_iter().find(|command| command.number() == number);
        let unknown = || Refused(format!("it sent the unknown command {number}"));
        let command = command.ok_or_else(unknown)?;
        let version = short(bytes, 2);
        if command == Command::Start && version != VERSION {
            return Err(Refused(format!(
                "it speaks version {version} of the protocol, and zfold only version 0"
            )));
        }
        Ok(Self { command, len: long(bytes, 8) })
    }
}

/// An answer without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_done: bool,
    /// Bytes of the payload.
    pub(super) len: u64,
}

impl Answer {
    pub(super) const DONE: Self = Self { is_done: true, len: 0 };
    pub(super) const REFUSED: Self = Self { is_done: false, len: 0 };

    pub(super) fn encode(self) -> [u8; HEADER] {
        header(if self.is_done { 1 } else { 2 }, self.len)
    }

    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Refused> {
        match short(bytes, 0) {
            1 => Ok(Self { is_done: true, len: long(bytes, 8) }),
            2 => Ok(Self { is_done: false, len: long(bytes, 8) }),
            status => Err(Refused(format!("it answered with the unknown status {status}"))),
        }
    }
}

/// A range of the guest's memory that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Fault {
    pub(super) fn decode(bytes: &[u8; FAULT]) -> Self {
        Self { at: long(bytes, 0), len: long(bytes, 8) }
    }
}

fn header(number: u16, len: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&len.to_le_bytes());
    bytes
}

fn short(bytes: &[u8; HEADER], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8; HEADER], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_places_are_those_of_the_protocol() {
        let start = Request::new(Command::Start, 0).encode();
        assert_eq!(start, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let state = Request::new(Command::State, 0x1_0203).encode();
        assert_eq!(state, [3, 0, 0, 0, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0]);
        let numbers = COMMANDS.map(|command| (command, Request::new(command, 0).encode()[0]));
        for (command, number) in [
            (Command::Config, 2),
            (Command::Memory, 4),
            (Command::Complete, 5),
            (Command::Abandon, 6),
            (Command::MemoryFd, 7),
            (Command::CompletePaused, 8),
            (Command::PageFault, 9),
        ] {
            assert!(numbers.contains(&(command, number)), "{command:?}");
        }
        assert_eq!((Answer::DONE.encode()[0], Answer::REFUSED.encode()[0]), (1, 2));
        assert_eq!(ROLE_FAULT, [2, 0]);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for command in COMMANDS {
            let request = Request::new(command, 0x0123_4567_89ab_cdef);
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        for answer in [Answer::DONE, Answer::REFUSED, Answer { is_done: true, len: 4096 }] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        let mut fault = [0; FAULT];
        (fault[1], fault[9]) = (0x40, 0x10);
        assert_eq!(Fault::decode(&fault), Fault { at: 0x4000, len: 0x1000 });
    }

    #[test]
    fn what_is_unknown_is_refused_and_what_is_reserved_is_not_read() {
        for number in [0, 10, 256, u16::MAX] {
            let refused = Request::decode(&header(number, 0)).expect_err("refused").0;
            assert_eq!(refused, format!("it sent the unknown command {number}"));
        }
        for status in [0, 3, 256] {
            let refused = Answer::decode(&header(status, 0)).expect_err("refused").0;
            assert_eq!(refused, format!("it answered with the unknown status {status}"));
        }
        let mut start = Request::new(Command::Start, 0).encode();
        start[4..8].fill(0xaa);
        assert!(Request::decode(&start).is_ok());
        start[2] = 1;
        let refused = Request::decode(&start).expect_err("refused").0;
        assert!(refused.starts_with("it speaks version 1"), "{refused}");
        // Other commands have no version.
        let mut config = Request::new(Command::Config, 7).encode();
        config[2] = 1;
        assert_eq!(Request::decode(&config), Ok(Request::new(Command::Config, 7)));
    }
}
