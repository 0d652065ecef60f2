//! Text for people: what would steer a terminal is shown, and not obeyed.
//!
//! Others choose names of processes, command lines, what servers say, and names of files.
//!
//! - L1: only `exit.rs` writes to stdout and stderr, and cleans what is for people. Output for
//!   programs, such as JSON, has its own escapes and stays exact. CSV has none, and stays exact
//!   where it goes to no terminal.
//! - L2: what others chose is one line: the code that puts it into a text cleans it there, so that
//!   it does not look like zfold's own lines.

/// The most characters of a line that others chose or had a part in.
const LINE_MAX: usize = 4000;

/// Returns a text as one line without anything that a terminal obeys: such characters are written
/// as in a string of Rust, a line break as `\n`, an escape as `\u{1b}`. Cut at 4000 characters.
/// Clean text stays as it is.
pub fn clean(text: &str) -> String {
    let mut line = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == LINE_MAX {
            line.push_str("...");
            break;
        }
        push(&mut line, c);
    }
    line
}

/// Returns a text with its lines, each as [`clean`] makes it, of any length.
pub fn clean_lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => lines.push(c),
            _ => push(&mut lines, c),
        }
    }
    lines
}

fn push(line: &mut String, c: char) {
    match steers(c) {
        true => line.extend(c.escape_default()),
        false => line.push(c),
    }
}

/// Returns whether a character does something other than to stand there: controls, of which those
/// beyond ASCII can begin sequences as escape does, separators of lines, and marks that turn the
/// direction of what follows.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown() {
        assert_eq!(clean("\x1b]0;PWN\x07\x1b[31m"), "\\u{1b}]0;PWN\\u{7}\\u{1b}[31m");
        assert_eq!(
            clean("a\nb\r\tc\u{7f}\u{9b}31m\u{202e}"),
            "a\\nb\\r\\tc\\u{7f}\\u{9b}31m\\u{202e}"
        );
        assert_eq!(clean("größer \u{1f600} 'a' \\n"), "größer \u{1f600} 'a' \\n");
        assert_eq!(clean_lines("a\x1b\nb\n"), "a\\u{1b}\nb\n");
        let once = clean("\x1b[31m\n");
        assert_eq!(clean(&once), once, "what is clean stays as it is");
    }

    #[test]
    fn a_line_has_a_bound() {
        let long = clean(&"é\x1b".repeat(LINE_MAX));
        assert!(long.ends_with("...") && long.chars().count() < 8 * LINE_MAX, "{}", long.len());
        assert_eq!(clean(&"é".repeat(LINE_MAX)).chars().count(), LINE_MAX);
    }

    /// Returns the sources in a folder with their names below `root`, each behind `program`.
    fn sources(root: &Path, program: &str, folder: &Path, all: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(root, program, &path, all);
            } else {
                let name = path.strip_prefix(root).expect("below it").display();
                let name = format!("{program}{name}");
                all.push((name, fs::read_to_string(&path).expect("text")));
            }
        }
    }

    /// Asserts that a part of a line is in these files of the programs only, so often (L1).
    fn only_in(part: &str, known: &[(&str, usize)]) {
        let mut all = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder");
        let folders = [("cli/src", ""), ("lab/src/program", "lab/"), ("console/src", "console/")];
        for (folder, program) in folders {
            sources(&crates.join(folder), program, &crates.join(folder), &mut all);
        }
        let mut found: Vec<_> = all
            .iter()
            .filter(|(name, _)| !["console/exit.rs", "console/clean.rs"].contains(&&**name))
            .map(|(name, text)| {
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                (&**name, code.filter(|line| line.contains(part)).count())
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        found.sort_unstable();
        assert_eq!(found, known, "{part}: write by exit.rs, which cleans what is for people");
    }

    #[test]
    fn nothing_is_written_past_what_cleans() {
        only_in("print!", &[]);
        only_in("println!", &[]);
        // Questions to clap, and whether it is a terminal.
        only_in("stderr()", &[("lab/main.rs", 1), ("main.rs", 1), ("run/attach.rs", 1)]);
        // The lab: a pipe to itself. Others ask for the terminal; the view draws cells.
        only_in(
            "stdout()",
            &[
                ("console/terminal.rs", 1),
                ("lab/run.rs", 1),
                ("run/manager.rs", 1),
                ("top/mod.rs", 1),
                ("top/screen.rs", 1),
            ],
        );
        // JSON, scripts, addresses, and a path that scripts read.
        only_in(
            "write_data(",
            &[
                ("check/mod.rs", 1),
                ("compare.rs", 1),
                ("completions.rs", 1),
                ("demo/mod.rs", 1),
                ("disk/ctl.rs", 1),
                ("disk/mod.rs", 1),
                ("guest/ask.rs", 1),
                ("guest/front.rs", 1),
                ("lab/run.rs", 1),
                ("ps.rs", 1),
            ],
        );
        // JSON at each interval, a report of JSON, and what the demo hears of its program.
        only_in(
            "Form::Data",
            &[("demo/work.rs", 1), ("run/report.rs", 1), ("stat.rs", 1), ("top/plain.rs", 1)],
        );
    }
}
