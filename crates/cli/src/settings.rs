//! The knobs: settings that can change while a device is served: one table of knobs, by zram's and
//! zswap's names where they have one.
//!
//! All else about a knob comes from its row: `zfold ctl` sets, gets, documents and completes them.

use std::str::FromStr;
use std::time::Duration;

use zfold_store::Tunables;

use crate::shared::duration::Interval;
use crate::shared::size::{PAGE_LEN, format_size, parse_size};

/// Least limit of a store in bytes: below, its tables leave no room for pages.
pub(crate) const STORE_LIMIT_MIN: u64 = 1 << 20;

/// The knobs of a device as they are.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) store: Tunables,
    pub(crate) shrinker: bool,
    pub(crate) idle_after: Option<Duration>,
}

/// A knob.
#[derive(Debug)]
pub(crate) struct Knob {
    pub(crate) name: &'static str,
    unit: Unit,
    turns: Turns,
}

/// How the value of a knob is written.
#[derive(Debug)]
enum Unit {
    /// The limit of a store in bytes, with a unit or without; 0 for none.
    Limit,
    /// Pages, or bytes with a unit.
    Pages,
    /// Yes or no, as the kernel takes them.
    Switch,
    /// A duration, kept in milliseconds and shown in seconds; 0 for never.
    Age,
    /// Nothing but 0.
    Zero,
}

/// The setting that a knob changes.
#[derive(Debug)]
enum Turns {
    Field(fn(&Knobs) -> u64, fn(&mut Knobs, u64)),
    /// The maximum of used memory is reset.
    UsedMax,
}

/// All knobs, in the order in which they are shown.
pub(crate) static KNOBS: [Knob; 6] = [
    Knob {
        name: "mem_limit",
        unit: Unit::Limit,
        turns: Turns::Field(
            |knobs| knobs.store.limit_bytes.unwrap_or(0),
            |knobs, bytes| knobs.store.limit_bytes = (bytes > 0).then_some(bytes),
        ),
    },
    // Turns the limit on, too.
    Knob {
        name: "writeback_limit",
        unit: Unit::Pages,
        turns: Turns::Field(
            |knobs| knobs.store.writeback_limit_pages.unwrap_or(0),
            |knobs, pages| knobs.store.writeback_limit_pages = Some(pages),
        ),
    },
    Knob {
        name: "writeback_limit_enable",
        unit: Unit::Switch,
        turns: Turns::Field(
            |knobs| knobs.store.writeback_limit_pages.is_some().into(),
            |knobs, on| {
                let pages = knobs.store.writeback_limit_pages.unwrap_or(0);
                knobs.store.writeback_limit_pages = (on != 0).then_some(pages);
            },
        ),
    },
    Knob {
        name: "shrinker_enabled",
        unit: Unit::Switch,
        turns: Turns::Field(|knobs| knobs.shrinker.into(), |knobs, on| knobs.shrinker = on != 0),
    },
    Knob {
        name: "idle_after",
        unit: Unit::Age,
        turns: Turns::Field(
            |knobs| knobs.idle_after.map_or(0, |after| after.as_millis() as u64),
            |knobs, ms| knobs.idle_after = (ms > 0).then(|| Duration::from_millis(ms)),
        ),
    },
    Knob { name: "mem_used_max", unit: Unit::Zero, turns: Turns::UsedMax },
];

impl Unit {
    fn read(&self, text: &str) -> Option<u64> {
        match self {
            Self::Limit => bytes(text).filter(|&bytes| bytes == 0 || bytes >= STORE_LIMIT_MIN),
            Self::Pages => pages(text),
            Self::Switch => match text {
                "1" | "Y" | "y" | "on" | "true" => Some(1),
                "0" | "N" | "n" | "off" | "false" => Some(0),
                _ => None,
            },
            Self::Age if text == "0" => Some(0),
            Self::Age => text.parse().ok().map(|Interval(after)| after.as_millis() as u64),
            Self::Zero => (text == "0").then_some(0),
        }
    }

    /// Returns what is accepted.
    fn wanted(&self) -> String {
        match self {
            Self::Limit => {
                format!("a size of {} or more, such as 512MiB, or 0", format_size(STORE_LIMIT_MIN))
            }
            Self::Pages => "pages, or a size such as 1GiB".to_owned(),
            Self::Switch => "1 or 0".to_owned(),
            Self::Age => "such as 10min, or 0".to_owned(),
            Self::Zero => "0, which resets it".to_owned(),
        }
    }

    fn shown(&self, value: u64) -> u64 {
        if matches!(self, Self::Age) { value / 1000 } else { value }
    }
}

/// A knob set to a value, written `NAME=VALUE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) knob: &'static Knob,
    value: u64,
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        (self.knob.name, self.value) == (other.knob.name, other.value)
    }
}

impl Setting {
    /// Turns the knob.
    pub(crate) fn apply(&self, knobs: &mut Knobs) {
        if let Turns::Field(_, set) = self.knob.turns {
            set(knobs, self.value);
        }
    }

    /// Returns whether the maximum of used memory is to be reset.
    pub(crate) fn resets_used_max(&self) -> bool {
        matches!(self.knob.turns, Turns::UsedMax)
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| format!("'{text}' is not NAME=VALUE"))?;
        let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
            let names: Vec<_> = KNOBS.iter().map(|knob| knob.name).collect();
            return Err(format!("no knob '{name}' (choices: {})", names.join(", ")));
        };
        let value = knob.unit.read(value);
        let value = value.ok_or_else(|| format!("{text}: give {}", knob.unit.wanted()))?;
        Ok(Self { knob, value })
    }
}

impl Knobs {
    /// Returns names and values, as they are shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KNOBS.iter().filter_map(|knob| match knob.turns {
            Turns::Field(get, _) => Some((knob.name, knob.unit.shown(get(self)))),
            Turns::UsedMax => None,
        })
    }
}

/// Returns the line of help for turning knobs.
pub(crate) fn help() -> String {
    let name = |knob: &Knob| match knob.unit {
        Unit::Zero => format!("{}=0", knob.name),
        _ => knob.name.to_owned(),
    };
    format!("Turn knobs: {}", KNOBS.iter().map(name).collect::<Vec<_>>().join(", "))
}

/// Reads bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    parse_size(text).ok()
}

/// Reads a number of pages, or a size in bytes that is rounded up to pages.
pub(crate) fn pages(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| parse_size(text).ok().map(|bytes| bytes.div_ceil(PAGE_LEN)))
}

#[cfg(test)]
mod tests {
    use zfold_store::{CodecKind, Store, StoreOptions};

    use super::*;

    fn knobs(text: &str) -> Knobs {
        let store = Store::open(&StoreOptions::new(1, CodecKind::Lz4.into())).expect("a store");
        let mut knobs = Knobs { store: store.tunables(), shrinker: false, idle_after: None };
        text.parse::<Setting>().expect(text).apply(&mut knobs);
        knobs
    }

    #[test]
    fn every_knob_is_read_with_its_units() {
        let minute = Some(Duration::from_secs(60));
        assert_eq!(knobs("mem_limit=512MiB").store.limit_bytes, Some(512 << 20));
        assert_eq!(knobs("mem_limit=0").store.limit_bytes, None);
        assert_eq!(knobs("writeback_limit=100").store.writeback_limit_pages, Some(100));
        assert_eq!(knobs("writeback_limit=1MiB").store.writeback_limit_pages, Some(256));
        assert_eq!(knobs("writeback_limit_enable=1").store.writeback_limit_pages, Some(0));
        assert_eq!(knobs("writeback_limit_enable=0").store.writeback_limit_pages, None);
        assert!(knobs("shrinker_enabled=1").shrinker);
        assert_eq!(knobs("idle_after=1min").idle_after, minute);
        assert_eq!(knobs("idle_after=0").idle_after, None);
        assert!("mem_used_max=0".parse::<Setting>().expect("valid").resets_used_max());
        for knob in &KNOBS {
            let wrong = format!("{}=x", knob.name);
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
            ("mem_used_max=7", "0, which"),
            ("shrinker_enabled=2", "1 or 0"),
        ];
        for (text, told) in cases {
            let error = text.parse::<Setting>().expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
