//! What a shell is offered for values that clap cannot list by itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::Parser as _;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use zfold_store::CodecKind;

use super::{Args, Command};
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

/// Completes the knobs of `zfold ctl set`, and the values of switches.
pub(super) fn knobs() -> ArgValueCompleter {
    of_words(settings::completions)
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

/// Completes a program by its name or path, and its arguments as files.
pub(super) fn program() -> ArgValueCompleter {
    ArgValueCompleter::new(Program)
}

struct Program;

impl ValueCompleter for Program {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, typed)
    }

    fn complete_at(&self, index: usize, typed: &OsStr) -> Vec<CompletionCandidate> {
        let is_path = typed.to_string_lossy().contains('/');
        match index {
            // clap counts from 0 again behind the first word.
            _ if index > 0 || is_named(env::args_os()) => PathCompleter::any().complete(typed),
            _ if is_path => PathCompleter::any().filter(may_be_run).complete(typed),
            _ => commands(&env::var_os("PATH").unwrap_or_default(), &typed.to_string_lossy())
                .into_iter()
                .map(CompletionCandidate::new)
                .collect(),
        }
    }
}

/// Returns whether the words before the last one that a shell asks about, behind a `--` of the shell,
/// name a program already.
fn is_named(asked: impl Iterator<Item = OsString>) -> bool {
    let mut words: Vec<OsString> = asked.skip_while(|word| word != "--").skip(1).collect();
    words.pop();
    Args::try_parse_from(words).is_ok_and(|args| matches!(args.command, Command::Run(_)))
}

/// Returns the programs in the folders of `path` whose names begin with `typed`, each once.
fn commands(path: &OsStr, typed: &str) -> Vec<String> {
    let entries = env::split_paths(path).filter_map(|folder| folder.read_dir().ok()).flatten();
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(typed))
        .filter(|entry| is_program(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn may_be_run(path: &Path) -> bool {
    path.is_dir() || is_program(path)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(completer: &ArgValueCompleter, typed: &str) -> Vec<String> {
        let candidates = completer.complete(OsStr::new(typed));
        candidates.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_come_before_values() {
        assert_eq!(offered(&writeback(), "t"), ["type="]);
        assert_eq!(offered(&writeback(), "type=h"), ["type=huge", "type=huge_idle"]);
        assert_eq!(offered(&recompress(), "algo=z"), ["algo=zstd"]);
        assert_eq!(offered(&knobs(), "mem_l"), ["mem_limit="]);
        assert_eq!(
            offered(&knobs(), "shrinker_enabled="),
            ["shrinker_enabled=0", "shrinker_enabled=1"]
        );
        assert!(offered(&knobs(), "nothing").is_empty());
    }

    #[test]
    fn a_program_is_named_once() {
        let named = |line: &str| is_named(line.split(' ').map(OsString::from));
        assert!(!named("zfold -- zfold run pyth"));
        assert!(!named("zfold -- zfold run --limit 1GiB -- pyth"));
        assert!(named("zfold -- zfold run python3 fil"));
        assert!(named("zfold -- zfold run --limit 1GiB -- python3 fil"));
    }

    #[test]
    fn commands_are_programs_in_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (name, mode) in [("tool-a", 0o755), ("tool-b", 0o644), ("other", 0o755)] {
            std::fs::write(path(name), "").expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path(name), mode).expect("the mode of a file");
        }
        let twice = env::join_paths([folder.path(), folder.path()]).expect("a path");
        assert_eq!(commands(&twice, "tool"), ["tool-a"]);
    }
}
