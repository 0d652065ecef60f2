//! What can be changed while guests are served.
//!
//! A server that takes over begins with the same values: after each change a new process is made
//! that stands by.

use std::str::FromStr;

use zfold_guest::Images;

use crate::settings::STORE_LIMIT_MIN;
use crate::shared::size::{format_size, parse_size};

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    /// Most bytes that images may take, or no limit.
    Limit(Option<u64>),
}

impl Setting {
    /// Carries it out.
    pub(super) fn apply(self, images: &Images) {
        let Self::Limit(bytes) = self;
        let mut tunables = images.store().tunables();
        tunables.limit_bytes = bytes;
        images.store().tune(&tunables).expect("a limit has no range");
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.split_once('=') {
            Some(("limit", "none")) => Ok(Self::Limit(None)),
            Some(("limit", value)) => match parse_size(value)? {
                bytes if bytes < STORE_LIMIT_MIN => {
                    let least = format_size(STORE_LIMIT_MIN);
                    Err(format!("{word} is too small to work with: give {least} or more"))
                }
                bytes => Ok(Self::Limit(Some(bytes))),
            },
            _ => Err(format!(
                "'{word}' is not limit=SIZE, which is all that a guest server can set (none: no \
                 limit)"
            )),
        }
    }
}
