//! What can be changed while guests are served.
//!
//! A server that takes over begins with the same values: after each change a new process is made
//! that stands by.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zfold_guest::{Images, Server};

use crate::settings::STORE_LIMIT_MIN;
use crate::shared::size::{format_size, parse_size};

/// What was chosen for the server that serves now, and for one that takes over from it.
///
/// The values are relaxed atomics: each stands for itself, and one thread at a time changes it. A
/// process that takes over is a copy of one that has it (`Served::renewed`).
#[derive(Debug)]
pub(super) struct Chosen {
    /// In bytes; 0: none.
    resident_limit: AtomicU64,
    is_paused: AtomicBool,
}

impl Chosen {
    pub(super) fn new(resident_limit: Option<u64>) -> Self {
        let resident_limit = AtomicU64::new(resident_limit.unwrap_or(0));
        Self { resident_limit, is_paused: AtomicBool::new(false) }
    }

    pub(super) fn resident_limit(&self) -> Option<u64> {
        Some(self.resident_limit.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Carries out a setting.
    pub(super) fn set(&self, setting: Setting, images: &Images, server: &Server) {
        match setting {
            Setting::Limit(bytes) => {
                let mut tunables = images.store().tunables();
                tunables.limit_bytes = bytes;
                images.store().tune(&tunables).expect("a limit has no range");
            }
            Setting::ResidentLimit(bytes) => {
                self.resident_limit.store(bytes.unwrap_or(0), Ordering::Relaxed);
                server.set_resident_limit(bytes);
            }
        }
    }

    /// Has no page leave to meet the limit, or has pages leave again.
    pub(super) fn pause(&self, is_paused: bool, server: &Server) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
        server.pause(is_paused);
    }
}

/// What can be set: limits in bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Setting {
    /// Of images.
    Limit(Option<u64>),
    /// Of guests.
    ResidentLimit(Option<u64>),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let limit = |value: &str| match value {
            "none" => Ok(None),
            value => match parse_size(value)? {
                bytes if bytes < STORE_LIMIT_MIN => {
                    let least = format_size(STORE_LIMIT_MIN);
                    Err(format!("{word} is too small to work with: give {least} or more"))
                }
                bytes => Ok(Some(bytes)),
            },
        };
        match word.split_once('=') {
            Some(("limit", value)) => limit(value).map(Self::Limit),
            Some(("resident-limit", value)) => limit(value).map(Self::ResidentLimit),
            _ => Err(format!(
                "'{word}' is not limit=SIZE or resident-limit=SIZE, which a guest server can set \
                 (none: no limit)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_limits_that_a_server_can_work_with() {
        assert_eq!("limit=64M".parse(), Ok(Setting::Limit(Some(64 << 20))));
        assert_eq!("limit=none".parse(), Ok(Setting::Limit(None)));
        assert_eq!("resident-limit=1G".parse(), Ok(Setting::ResidentLimit(Some(1 << 30))));
        for (word, told) in [
            ("limit=1", "1MiB or more"),
            ("resident-limit=4KiB", "1MiB or more"),
            ("resident-limit=x", "a size is"),
            ("limit", "resident-limit=SIZE"),
            ("codec=lz4", "resident-limit=SIZE"),
        ] {
            assert!(word.parse::<Setting>().expect_err(word).contains(told), "{word}");
        }
    }
}
