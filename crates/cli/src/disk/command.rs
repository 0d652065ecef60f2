//! The commands of the control socket, read from words as zram's files take them.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use zfold_store::{Recompress, Selection};

use super::snapshot::SnapshotPlace;
use crate::settings::{Setting, bytes, pages};
use crate::shared::duration::Interval;
use crate::shared::size::parse_size;

/// Default length of a trained dictionary, in bytes.
const DICTIONARY_LEN: usize = 16 << 10;

/// Longest dictionary, in bytes.
const DICTIONARY_LEN_MAX: u64 = 1 << 20;

/// A request to a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlCommand {
    /// Tell the knobs.
    Get,
    /// Turn knobs.
    Set(Vec<Setting>),
    /// Compact the pool.
    Compact,
    /// Mark pages idle that were not used for so long; all pages without.
    Idle(Option<Duration>),
    /// Write pages to the backing file.
    Writeback {
        /// Which pages.
        selection: Selection,
        /// At most this many.
        max_pages: Option<u64>,
    },
    /// Compress pages again, with that codec of the list, or the first.
    Recompress(Recompress, Option<String>),
    /// Write a snapshot.
    Save(SnapshotPlace),
    /// Train a dictionary on the contents and write it to a file.
    Train {
        /// The file.
        path: PathBuf,
        /// Longest dictionary in bytes.
        max_len: usize,
    },
    /// Tell the statistics.
    Stat,
    /// End the server.
    Shutdown,
}

impl ControlCommand {
    /// Returns the command `name` with its arguments.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub(crate) fn parse(name: &str, words: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (name, &words[..]) {
            ("get", []) => Ok(Self::Get),
            ("set", []) => Err("set needs NAME=VALUE, such as mem_limit=512MiB".to_owned()),
            ("set", words) => {
                words.iter().map(|word| word.parse()).collect::<Result<_, _>>().map(Self::Set)
            }
            ("compact", []) => Ok(Self::Compact),
            ("idle", ["all"]) => Ok(Self::Idle(None)),
            ("idle", [age]) => idle_age(age).map(|age| Self::Idle(Some(age))),
            ("idle", _) => Err("idle needs 'all' or an age, such as 10min".to_owned()),
            ("writeback", words) => writeback(words),
            ("recompress", words) => recompress(words),
            ("save", [place]) => SnapshotPlace::parse("save", place.as_ref())
                .map(Self::Save)
                .map_err(|failure| failure.line().to_owned()),
            ("save", _) => Err("save needs the name of a file, or s3://BUCKET/KEY".to_owned()),
            ("train", words) => train(words),
            ("stat", []) => Ok(Self::Stat),
            ("shutdown", []) => Ok(Self::Shutdown),
            ("get" | "compact" | "stat" | "shutdown", [first, ..]) => {
                Err(format!("{name} takes no '{first}': leave it out"))
            }
            ("page-out", _) => {
                Err(format!("{name} is for runs: name one with --pid (see zfold ps)"))
            }
            _ => Err(format!("no command '{name}' (see zfold ctl --help)")),
        }
    }
}

/// Reads an age, in seconds if it has no unit.
fn idle_age(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => text.parse::<Interval>().map(|age| age.0),
    }
}

fn writeback(words: &[&str]) -> Result<ControlCommand, String> {
    let (mut selection, mut ranges, mut max_pages) = (None, Vec::new(), None);
    for word in words {
        match word.split_once('=') {
            Some(("type", "incompressible")) => selection = Some(Selection::Incompressible),
            Some(("type", "lru")) => selection = Some(Selection::Lru),
            Some(("type", kind)) => selection = Some(kind_of(kind, "incompressible, lru")?),
            Some(("page_index", index)) => ranges.push(page_range(index, index)?),
            Some(("page_indexes", both)) => {
                let (low, high) = both.split_once('-').unwrap_or((both, both));
                ranges.push(page_range(low, high)?);
            }
            Some(("max_pages", number)) => max_pages = Some(count(number)?),
            _ => {
                return Err(format!(
                    "'{word}' is not type=, page_index=, page_indexes=LOW-HIGH or max_pages="
                ));
            }
        }
    }
    let selection = match (selection, ranges.is_empty()) {
        (Some(selection), true) => selection,
        (None, false) => Selection::Keys(ranges),
        (Some(_), false) => {
            return Err("give type= or page indexes, not both".to_owned());
        }
        (None, true) => {
            return Err("writeback needs type=idle, huge, huge_idle, incompressible or lru, or \
                        page_index="
                .to_owned());
        }
    };
    Ok(ControlCommand::Writeback { selection, max_pages })
}

fn recompress(words: &[&str]) -> Result<ControlCommand, String> {
    let (mut how, mut codec) = (Recompress::new(Selection::All, 1), None);
    for word in words {
        match word.split_once('=') {
            Some(("type", "all")) => how.selection = Selection::All,
            Some(("type", kind)) => how.selection = kind_of(kind, "all")?,
            Some(("threshold", text)) => {
                let len = bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
                how.threshold_bytes = Some(len.ok_or_else(|| wrong_number(text))?);
            }
            Some(("max_pages", number)) => how.max_pages = Some(count(number)?),
            Some(("algo", name)) => codec = Some(name.to_owned()),
            _ => {
                return Err(format!("'{word}' is not type=, threshold=, max_pages= or algo="));
            }
        }
    }
    Ok(ControlCommand::Recompress(how, codec))
}

fn train(words: &[&str]) -> Result<ControlCommand, String> {
    let (path, max_len) = match words {
        [path] => (path, DICTIONARY_LEN),
        [path, size] => {
            let len = parse_size(size)?;
            if !(1..=DICTIONARY_LEN_MAX).contains(&len) {
                return Err("a dictionary has at most 1MiB: give less".to_owned());
            }
            (path, len as usize)
        }
        _ => return Err("train needs the name of a file, and at most a size".to_owned()),
    };
    Ok(ControlCommand::Train { path: path.into(), max_len })
}

/// Returns the pages of a kind that all commands know; `others` completes the choices.
fn kind_of(name: &str, others: &str) -> Result<Selection, String> {
    match name {
        "idle" => Ok(Selection::Idle),
        "huge" => Ok(Selection::Huge),
        "huge_idle" => Ok(Selection::HugeIdle),
        _ => Err(format!("no type '{name}' (choices: idle, huge, huge_idle, {others})")),
    }
}

/// Reads a range of pages, both ends of it included.
fn page_range(low: &str, high: &str) -> Result<Range<u64>, String> {
    let index = |text: &str| text.parse::<u64>().map_err(|_| wrong_number(text));
    let (low, high) = (index(low)?, index(high)?);
    match high.checked_add(1) {
        Some(end) if low < end => Ok(low..end),
        _ => Err(format!("{low}-{high} is not a range: give LOW-HIGH")),
    }
}

fn count(text: &str) -> Result<u64, String> {
    pages(text).ok_or_else(|| wrong_number(text))
}

fn wrong_number(text: &str) -> String {
    format!("'{text}' is not a number: give digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ControlCommand, String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().expect("a name");
        ControlCommand::parse(&name, &words.collect::<Vec<_>>())
    }

    #[test]
    fn the_words_of_zram_are_understood() {
        let keys = Selection::Keys(vec![5..6, 8..11]);
        assert_eq!(
            parse("writeback page_index=5 page_indexes=8-10 max_pages=2"),
            Ok(ControlCommand::Writeback { selection: keys, max_pages: Some(2) })
        );
        assert_eq!(
            parse("writeback type=huge_idle"),
            Ok(ControlCommand::Writeback { selection: Selection::HugeIdle, max_pages: None })
        );
        assert_eq!(parse("idle all"), Ok(ControlCommand::Idle(None)));
        assert_eq!(parse("idle 30"), parse("idle 30s"));
        let Ok(ControlCommand::Recompress(how, codec)) =
            parse("recompress type=idle threshold=3000 algo=zstd:9")
        else {
            panic!("refused")
        };
        assert_eq!((how.selection, how.threshold_bytes), (Selection::Idle, Some(3000)));
        assert_eq!(codec.as_deref(), Some("zstd:9"));
        assert_eq!(parse("train f 16KiB"), parse("train f"));
    }

    #[test]
    fn wrong_words_are_told_with_what_is_right() {
        let cases = [
            ("fly", "no command 'fly'"),
            ("page-out", "is for runs"),
            ("get it", "get takes no 'it'"),
            ("set", "NAME=VALUE"),
            ("set x=1", "no knob 'x'"),
            ("idle", "'all' or an age"),
            ("idle soon", "a duration is"),
            ("writeback", "needs type="),
            ("writeback type=warm", "no type 'warm'"),
            ("writeback huge", "'huge' is not type="),
            ("writeback page_indexes=9-8", "not a range"),
            ("writeback page_index=18446744073709551615", "not a range"),
            ("writeback page_index=x", "not a number"),
            ("writeback type=idle page_index=1", "not both"),
            ("recompress type=lru", "no type 'lru'"),
            ("save", "name of a file"),
            ("train", "name of a file"),
            ("train f 2MiB", "at most 1MiB"),
        ];
        for (line, told) in cases {
            let error = parse(line).expect_err(line);
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
