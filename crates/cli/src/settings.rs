//! The knobs: settings that can change while a device is served, by zram's and zswap's names where
//! they have one.

use std::str::FromStr;
use std::time::Duration;

use zfold_store::Tunables;

use crate::shared::duration::Interval;
use crate::shared::size::{PAGE_LEN, parse_size};

/// Least limit of a store in bytes: below, its tables leave no room for pages.
pub(crate) const STORE_LIMIT_MIN: u64 = 1 << 20;

/// The names of all knobs, in the order in which they are shown.
const KNOBS: [&str; 5] =
    ["mem_limit", "writeback_limit", "writeback_limit_enable", "shrinker_enabled", "idle_after"];

/// The knobs of a device as they are.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) store: Tunables,
    pub(crate) shrinker: bool,
    pub(crate) idle_after: Option<Duration>,
}

/// A knob set to a value, written `NAME=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Setting {
    /// The limit of the store in bytes, with a unit or without; 0 for none.
    MemLimit(Option<u64>),
    /// What may be written back from now on: pages, or bytes with a unit. Turns the limit on.
    WritebackLimit(u64),
    WritebackLimitEnable(bool),
    Shrinker(bool),
    /// 0 for never.
    IdleAfter(Option<Duration>),
}

impl Setting {
    /// Turns the knob.
    pub(crate) fn apply(self, knobs: &mut Knobs) {
        let limit = &mut knobs.store.writeback_limit_pages;
        match self {
            Self::MemLimit(bytes) => knobs.store.limit_bytes = bytes,
            Self::WritebackLimit(pages) => *limit = Some(pages),
            Self::WritebackLimitEnable(on) => *limit = on.then(|| limit.unwrap_or(0)),
            Self::Shrinker(on) => knobs.shrinker = on,
            Self::IdleAfter(after) => knobs.idle_after = after,
        }
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| format!("'{text}' is not NAME=VALUE"))?;
        let (setting, wanted) = match name {
            "mem_limit" => (
                bytes(value)
                    .filter(|&bytes| bytes == 0 || bytes >= STORE_LIMIT_MIN)
                    .map(|bytes| Self::MemLimit((bytes > 0).then_some(bytes))),
                "a size of 1MiB or more, such as 512MiB, or 0",
            ),
            "writeback_limit" => {
                (pages(value).map(Self::WritebackLimit), "pages, or a size such as 1GiB")
            }
            "writeback_limit_enable" => (switch(value).map(Self::WritebackLimitEnable), "1 or 0"),
            "shrinker_enabled" => (switch(value).map(Self::Shrinker), "1 or 0"),
            "idle_after" if value == "0" => (Some(Self::IdleAfter(None)), ""),
            "idle_after" => {
                let after = value.parse().ok().map(|Interval(after)| after);
                let after = after.map(|after: Duration| (!after.is_zero()).then_some(after));
                (after.map(Self::IdleAfter), "such as 10min, or 0")
            }
            _ => {
                let names = KNOBS.join(", ");
                return Err(format!("no knob '{name}' (choices: {names})"));
            }
        };
        setting.ok_or_else(|| format!("{text}: give {wanted}"))
    }
}

impl Knobs {
    /// Returns names and values, as they are shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let writeback = self.store.writeback_limit_pages;
        let values = [
            self.store.limit_bytes.unwrap_or(0),
            writeback.unwrap_or(0),
            writeback.is_some().into(),
            self.shrinker.into(),
            self.idle_after.map_or(0, |after| after.as_secs()),
        ];
        KNOBS.into_iter().zip(values)
    }
}

/// Returns the line of help for turning knobs.
pub(crate) fn help() -> String {
    format!("Turn knobs: {}", KNOBS.join(", "))
}

/// Reads bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    parse_size(text).ok()
}

/// Reads a number of pages, or a size in bytes that is rounded up to pages.
pub(crate) fn pages(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| bytes(text).map(|bytes| bytes.div_ceil(PAGE_LEN)))
}

/// Reads yes or no, as the kernel takes them.
fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "Y" | "y" | "on" | "true" => Some(true),
        "0" | "N" | "n" | "off" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use zfold_store::{CodecKind, Store, StoreOptions};

    use super::*;

    #[test]
    fn every_knob_is_read_with_its_units_and_shown() {
        let store = Store::open(&StoreOptions::new(1, CodecKind::Lz4.into())).expect("a store");
        let mut knobs = Knobs { store: store.tunables(), shrinker: false, idle_after: None };
        for (text, name, shown) in [
            ("mem_limit=512MiB", "mem_limit", 512 << 20),
            ("mem_limit=0", "mem_limit", 0),
            ("writeback_limit=100", "writeback_limit", 100),
            ("writeback_limit=1MiB", "writeback_limit", 256),
            ("writeback_limit_enable=1", "writeback_limit", 256),
            ("writeback_limit_enable=0", "writeback_limit_enable", 0),
            ("writeback_limit_enable=Y", "writeback_limit_enable", 1),
            ("shrinker_enabled=on", "shrinker_enabled", 1),
            ("idle_after=1min", "idle_after", 60),
            ("idle_after=0s", "idle_after", 0),
            ("idle_after=0", "idle_after", 0),
        ] {
            text.parse::<Setting>().expect(text).apply(&mut knobs);
            assert!(knobs.shown().any(|is| is == (name, shown)), "{text}: {knobs:?}");
            assert!(shown != 0 || knobs.idle_after.is_none(), "{text}: {knobs:?}");
        }
        for name in KNOBS {
            let wrong = format!("{name}=x");
            let told = wrong.parse::<Setting>().expect_err(&wrong);
            assert!(told.starts_with(&format!("{wrong}: give ")), "{told}");
        }
    }

    #[test]
    fn wrong_settings_are_told_with_what_is_right() {
        let cases = [
            ("mem_limit", "NAME=VALUE"),
            ("mem_limit=5", "1MiB or more"),
            ("limit=1", "no knob 'limit' (choices: mem_limit"),
            ("shrinker_enabled=2", "1 or 0"),
        ];
        for (text, told) in cases {
            let error = text.parse::<Setting>().expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
