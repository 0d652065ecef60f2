//! `nbd://HOST[:PORT][/EXPORT]`: a block device that another machine serves.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::address::Address;
use super::error::{PlaceError, place_error};

/// The port of NBD.
const PORT: u16 = 10809;

/// Longest name of an export.
const NAME_MAX: usize = 4096;

/// What is written as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/');

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdPlace {
    /// The server.
    pub server: Address,
    /// The export's name; empty for the server's default export.
    pub export: String,
}

impl NbdPlace {
    /// Reads what is behind `nbd://`.
    pub(super) fn parse(rest: &str) -> Result<Self, PlaceError> {
        let (server, export) = rest.split_once('/').unwrap_or((rest, ""));
        let server = Address::parse_with(server, PORT)
            .map_err(|error| place_error!("nbd://: {error}, and /EXPORT if it has a name"))?;
        let decoded = percent_decode_str(export).decode_utf8();
        match decoded {
            Ok(export) if export.len() <= NAME_MAX && !export.contains(char::is_control) => {
                Ok(Self { server, export: export.into_owned() })
            }
            _ => Err(place_error!(
                "nbd://{server}/: the export's name is not text of at most 4096 bytes"
            )),
        }
    }
}

impl fmt::Display for NbdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nbd://{}/{}", self.server, utf8_percent_encode(&self.export, ESCAPED))
    }
}
