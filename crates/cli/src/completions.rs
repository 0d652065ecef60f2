//! Completion in shells: the script that a shell loads, and the answers to its requests.
//!
//! The script has zfold itself called at each Tab, with the words so far and [`ASKED`] set. Those
//! of zsh, fish and others are clap's; that of bash is written here, because bash splits words at
//! `=` and `:`, which zfold's words contain.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::{Args, Command};
use crate::shared::exit::{self, Failure};
use crate::shared::program::is_program;

/// The variable that says that a shell asks, and which.
const ASKED: &str = "ZFOLD_COMPLETE";

/// Words are put together again as they were typed, and what bash holds for a word of its own is
/// taken off the answers.
const BASH: &str = r#"_zfold() {
    local IFS=$'\013' words=() index=-1 glue=1 word last= i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -gt 1 && $word == [=:]* ]]; then glue=1; fi
        if [[ -n $glue && $index -gt 0 ]]; then
            words[index]+=$word
        else
            index=$((index + 1))
            words[index]=$word
        fi
        glue=
        last=$word
        if [[ $word == [=:]* ]]; then
            glue=1
            last=
        fi
    done
    local typed=${words[index]}
    local prefix=${typed%"$last"}
    COMPREPLY=($(_CLAP_IFS="$IFS" _CLAP_COMPLETE_INDEX=$index ZFOLD_COMPLETE=bash \
        zfold -- "${words[@]}" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace
    fi
    if [[ -e ${COMPREPLY[0]} ]]; then
        compopt -o filenames
    fi
}
complete -F _zfold zfold
"#;

/// Answers a shell's request, and then ends this process.
pub(crate) fn complete() {
    CompleteEnv::with_factory(command).var(ASKED).bin("zfold").completer("zfold").complete();
}

/// Returns zfold's arguments; the program of a run is completed, too.
fn command() -> clap::Command {
    Args::command()
        .mut_subcommand("run", |run| run.mut_arg("command", |words| words.add(program())))
}

/// Writes the script for a shell to stdout.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    if shell == Shell::Bash {
        return exit::write_data(BASH.as_bytes());
    }
    let shells = Shells::builtins();
    let of_shell = shells.completer(&shell.to_string()).expect("the two lists are the same");
    let mut script = Vec::new();
    let written = of_shell.write_registration(ASKED, "zfold", "zfold", "zfold", &mut script);
    written.expect("a Vec takes all");
    exit::write_data(&script)
}

/// Completes a program by its name or path, and its arguments as files.
fn program() -> ArgValueCompleter {
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

/// Returns whether the words before the last one that a shell asks about, behind a `--` of the
/// shell, name a program already.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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
