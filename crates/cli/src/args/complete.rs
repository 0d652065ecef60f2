//! Completions for values that clap cannot list by itself.

use std::ffi::OsStr;

use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use zfold_store::CodecKind;

use crate::settings;

/// Kinds of pages that both commands below know.
const KINDS: [&str; 3] = ["type=idle", "type=huge", "type=huge_idle"];

/// Completes the names of codecs.
pub(super) fn codecs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| codec_names().map(CompletionCandidate::new).collect())
}

fn codec_names() -> impl Iterator<Item = String> {
    let names = CodecKind::ALL.into_iter().map(|kind| kind.name().to_owned());
    names.chain(["page:deep".to_owned()])
}

/// Completes the knobs of `zfold ctl set`, of disks and of runs, and the values of switches.
pub(super) fn knobs() -> ArgValueCompleter {
    let of_runs = || ["limit=", "store-limit="].map(str::to_owned);
    of_words(move || settings::completions().into_iter().chain(of_runs()).collect())
}

/// Completes the words of `zfold guest set`.
pub(super) fn guest_knobs() -> ArgValueCompleter {
    of_words(|| vec!["limit=none".to_owned()])
}

/// Completes the words of `zfold ctl writeback`.
pub(super) fn writeback() -> ArgValueCompleter {
    of_words(|| {
        let others = ["type=incompressible", "type=lru", "page_index=", "page_indexes="];
        KINDS.into_iter().chain(others).chain(["max_pages="]).map(str::to_owned).collect()
    })
}

/// Completes the words of `zfold ctl recompress`.
pub(super) fn recompress() -> ArgValueCompleter {
    of_words(|| {
        let others = ["type=all", "threshold=", "max_pages=", "priority=1", "priority=2"];
        let words = KINDS.into_iter().chain(others).chain(["priority=3"]).map(str::to_owned);
        words.chain(codec_names().map(|name| format!("algo={name}"))).collect()
    })
}

/// Completes words `NAME=VALUE`: names first, the values of one name after it.
fn of_words(words: impl Fn() -> Vec<String> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let mut fitting: Vec<String> = Vec::new();
        for word in words().into_iter().filter(|word| word.starts_with(&*typed)) {
            let name = word.split_inclusive('=').next().unwrap_or_default();
            let offered = if typed.contains('=') { &word } else { name };
            if !fitting.iter().any(|known| known == offered) {
                fitting.push(offered.to_owned());
            }
        }
        fitting.into_iter().map(CompletionCandidate::new).collect()
    })
}
