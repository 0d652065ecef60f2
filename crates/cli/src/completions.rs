//! Completion in shells: the script that a shell loads, and the answers to what it then asks.
//!
//! The script has zfold itself called at each Tab, with the words so far and [`ASKED`] set. Those of
//! zsh, fish and others are clap's; that of bash is written here, because bash splits words at `=`
//! and `:`, which zfold's words contain.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::Args;
use crate::shared::exit::{self, Failure};

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

/// Answers a shell that asks, and ends this process then.
pub(crate) fn complete() {
    CompleteEnv::with_factory(Args::command).var(ASKED).bin("zfold").completer("zfold").complete();
}

/// Writes the script for a shell to stdout.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    if shell == Shell::Bash {
        return exit::write_output(BASH.as_bytes());
    }
    let shells = Shells::builtins();
    let of_shell = shells.completer(&shell.to_string()).expect("the two lists are the same");
    let mut script = Vec::new();
    let written = of_shell.write_registration(ASKED, "zfold", "zfold", "zfold", &mut script);
    written.expect("a Vec takes all");
    exit::write_output(&script)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_has_a_script() {
        for shell in Shell::value_variants() {
            assert!(Shells::builtins().completer(&shell.to_string()).is_some(), "{shell}");
        }
        assert!(BASH.contains(ASKED));
    }
}
