//! The knobs of a device by name: zram's and zswap's names where they have one.

use std::str::FromStr;
use std::time::Duration;

use crate::shared::duration::Interval;
use crate::shared::size::{PAGE_LEN, parse_size};


/// A knob set to a value, written `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// `mem_limit`: most bytes in memory; 0 for none.
    MemLimit(Option<u64>),
    /// `accept_threshold_percent`.
    AcceptThreshold(u8),
    /// `writeback_limit`: pages that may still be written back; turns the limit on.
    WritebackLimit(u64),
    /// `writeback_limit_enable`.
    WritebackLimitEnable(bool),
    /// `writeback_batch_size`: pages.
    WritebackBatch(u32),
    /// `same_filled_pages_enabled`.
    SameFilled(bool),
    /// `shrinker_enabled`.
    Shrinker(bool),
    /// `idle_after`; 0 for never.
    IdleAfter(Option<Duration>),
    /// `mem_used_max=0`: starts it anew.
    ResetUsedMax,
}

/// The names, for messages.
const NAMES: [&str; 9] = [
    "mem_limit",
    "accept_threshold_percent",
    "writeback_limit",
    "writeback_limit_enable",
    "writeback_batch_size",
    "same_filled_pages_enabled",
    "shrinker_enabled",
    "idle_after",
    "mem_used_max",
];

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| format!("'{text}' is not NAME=VALUE"))?;
        let wrong = |what: &str| format!("{name}={value}: give {what}");
        match name {
            "mem_limit" => {
                let bytes = bytes(value).ok_or_else(|| wrong("a size, such as 512MiB, or 0"))?;
                Ok(Self::MemLimit((bytes > 0).then_some(bytes)))
            }
            "accept_threshold_percent" => {
                let percent = value.parse().ok().filter(|percent| *percent <= 100);
                percent.map(Self::AcceptThreshold).ok_or_else(|| wrong("0 to 100"))
            }
            "writeback_limit" => {
                let pages = pages(value).ok_or_else(|| wrong("pages, or a size such as 1GiB"))?;
                Ok(Self::WritebackLimit(pages))
            }
            "writeback_batch_size" => {
                let pages = value.parse().ok().filter(|pages| (1..=1024).contains(pages));
                pages.map(Self::WritebackBatch).ok_or_else(|| wrong("1 to 1024 pages"))
            }
            "writeback_limit_enable" => switch(value).map(Self::WritebackLimitEnable),
            "same_filled_pages_enabled" => switch(value).map(Self::SameFilled),
            "shrinker_enabled" => switch(value).map(Self::Shrinker),
            "idle_after" if value == "0" => Ok(Self::IdleAfter(None)),
            "idle_after" => {
                let after: Interval = value.parse().map_err(|_| wrong("such as 10min, or 0"))?;
                Ok(Self::IdleAfter(Some(after.0)))
            }
            "mem_used_max" if value == "0" => Ok(Self::ResetUsedMax),
            "mem_used_max" => Err(wrong("0, which starts it anew")),
            _ => Err(format!("no knob '{name}' (choices: {})", NAMES.join(", "))),
        }
        .map_err(|told| if told.contains('=') { told } else { format!("{name}={value}: {told}") })
    }
}

/// Reads bytes, with a unit or without.
pub(super) fn bytes(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| parse_size(text).ok())
}

/// Reads a number of pages, or a size in bytes that is rounded up to pages.
pub(super) fn pages(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| parse_size(text).ok().map(|bytes| bytes.div_ceil(PAGE_LEN)))
}

/// Reads what the kernel takes for yes and no.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "Y" | "y" | "on" | "true" => Ok(true),
        "0" | "N" | "n" | "off" | "false" => Ok(false),
        _ => Err("give 1 or 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_read_with_its_units() {
        let minute = Duration::from_secs(60);
        let cases = [
            ("mem_limit=512MiB", Setting::MemLimit(Some(512 << 20))),
            ("mem_limit=0", Setting::MemLimit(None)),
            ("accept_threshold_percent=75", Setting::AcceptThreshold(75)),
            ("writeback_limit=100", Setting::WritebackLimit(100)),
            ("writeback_limit=1MiB", Setting::WritebackLimit(256)),
            ("writeback_limit_enable=0", Setting::WritebackLimitEnable(false)),
            ("writeback_batch_size=8", Setting::WritebackBatch(8)),
            ("same_filled_pages_enabled=Y", Setting::SameFilled(true)),
            ("shrinker_enabled=1", Setting::Shrinker(true)),
            ("idle_after=1min", Setting::IdleAfter(Some(minute))),
            ("idle_after=0", Setting::IdleAfter(None)),
            ("mem_used_max=0", Setting::ResetUsedMax),
        ];
        for (text, setting) in cases {
            assert_eq!(text.parse(), Ok(setting), "{text}");
        }
        for name in NAMES {
            let told = format!("{name}=x").parse::<Setting>().expect_err(name);
            assert!(told.starts_with(&format!("{name}=x: ")), "{told}");
        }
    }

    #[test]
    fn wrong_settings_are_told_with_what_is_right() {
        let cases = [
            ("mem_limit", "NAME=VALUE"),
            ("limit=1", "no knob 'limit' (choices: mem_limit"),
            ("accept_threshold_percent=101", "0 to 100"),
            ("writeback_batch_size=0", "1 to 1024"),
            ("mem_used_max=7", "0, which"),
            ("shrinker_enabled=2", "1 or 0"),
        ];
        for (text, told) in cases {
            let error = text.parse::<Setting>().expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
