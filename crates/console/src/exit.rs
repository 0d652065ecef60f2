//! How the program ends: one line about a failure, an exit status, and quiet broken pipes; and all
//! that it writes to stdout and stderr, cleaned where it is for people (clean/L1).

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::clean::{clean, clean_lines};

/// A reason to end without success: one clean line for people, and an exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    /// Returns a failure of the work itself, status 1.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: clean(&line.into()), status: 1 }
    }

    /// Returns the failure of arguments that do not go together, status 2.
    pub fn usage(line: impl Into<String>) -> Self {
        Self { line: clean(&line.into()), status: 2 }
    }

    /// Returns the failure of arguments that clap refused, status 2.
    pub fn refused(error: &clap::Error) -> Self {
        // Where a value is expected, clap takes "-1GiB" for options.
        if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
            && error.kind() == ErrorKind::UnknownArgument
            && option
                .strip_prefix('-')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Self::usage(format!(
                "{option}... is not an option, and no size or number here is below 0: leave out \
                    the '-' (see {} --help)",
                command(&error.render().to_string())
            ));
        }
        Self::usage(fold(&error.render().to_string()))
    }

    /// Returns the same failure with another status.
    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Returns the line.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Writes the line to stderr and returns the exit status.
    pub fn report(&self) -> ExitCode {
        // There is no reader left when stderr is closed.
        let _ = writeln!(io::stderr(), "zfold: {}", self.line);
        ExitCode::from(self.status)
    }
}

/// Writes a remark for people to stderr.
pub fn remark(line: &str) {
    let _ = writeln!(io::stderr(), "zfold: {}", clean(line));
}

/// Whom a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// People: it is cleaned.
    Text,
    /// People who look at a terminal that is to be cleared first.
    Screen,
    /// Programs: it has escapes of its own, and stays exact.
    Data,
}

impl Form {
    /// Moves to the upper left corner and clears what follows.
    const CLEAR: &str = "\x1b[H\x1b[2J";

    /// Returns the text as it is written.
    fn formed(self, text: &str) -> String {
        match self {
            Self::Text => clean_lines(text),
            Self::Screen => format!("{}{}", Self::CLEAR, clean_lines(text)),
            Self::Data => text.to_owned(),
        }
    }
}

/// Writes a report to stderr.
pub fn report(form: Form, text: &str) {
    // There is no reader left when it is closed.
    let _ = io::stderr().write_all(form.formed(text).as_bytes());
}

/// Writes results for people to stdout.
///
/// # Errors
/// When they cannot be written; a reader that has left is no error.
pub fn write_text(text: &str) -> Result<(), Failure> {
    write_data(clean_lines(text).as_bytes())
}

/// Writes records for programs, in a form without escapes such as CSV, to stdout: as they are, and
/// cleaned where stdout is a terminal, which people look at.
///
/// # Errors
/// Same as [`write_text`].
pub fn write_records(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() { write_text(text) } else { write_data(text.as_bytes()) }
}

/// Writes results for programs to stdout, as they are.
///
/// # Errors
/// Same as [`write_text`].
pub fn write_data(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    finish_output(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Writes one of several results to stdout; returns whether the reader is still there.
///
/// # Errors
/// Same as [`write_text`].
pub fn write_part(form: Form, text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(form.formed(text).as_bytes()).and_then(|()| stdout.flush());
    let reads_on = written.is_ok();
    finish_output(written).map(|()| reads_on)
}

/// Returns the failure of writing to stdout, if it is one.
pub fn finish_output(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write the results: {error}; free some space or write them elsewhere"
        ))),
        _ => Ok(()),
    }
}

/// Returns clap's message of several lines as one: what is wrong, the choices, where to read on.
fn fold(message: &str) -> String {
    let told = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let parts: Vec<&str> = told
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    format!("{} (see {} --help)", parts.join(" ").replace(" tip: ", "; "), command(message))
}

/// Returns the command whose usage clap's message shows.
fn command(message: &str) -> String {
    let usage = message.lines().find_map(|line| line.strip_prefix("Usage: "));
    let words = usage.unwrap_or("zfold").split_whitespace();
    let words = words.take_while(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_folded_into_one_line() {
        let message = "error: invalid value 'x' for '--format <FORMAT>'\n  \
            [possible values: table, json]\n\n  tip: a similar value exists: 'table'\n\n\
            Usage: zfold compare [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            fold(message),
            "invalid value 'x' for '--format <FORMAT>' [possible values: table, json]; \
             a similar value exists: 'table' (see zfold compare --help)"
        );
    }

    #[test]
    fn what_is_for_people_is_cleaned_and_what_is_for_programs_is_not() {
        assert_eq!(Failure::new("a \x1b[31m\nb").line(), "a \\u{1b}[31m\\nb");
        assert_eq!(Failure::usage("\x07").line(), "\\u{7}");
        assert_eq!(Form::Text.formed("a\x1b\n"), "a\\u{1b}\n");
        assert_eq!(Form::Screen.formed("a\x1b\n"), "\x1b[H\x1b[2Ja\\u{1b}\n");
        assert_eq!(Form::Data.formed("a\x1b\n"), "a\x1b\n");
    }

    #[test]
    fn only_a_broken_pipe_is_quiet() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(finish_output(Err(broken)), Ok(()));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(finish_output(Err(full)).expect_err("a failure").status, 1);
    }
}
