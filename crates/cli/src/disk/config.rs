//! The configuration file: TOML whose keys are the flags, with a table for each device.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use zfold_store::files::open_believed;

use crate::args::ServerSettings;
use crate::shared::exit::Failure;
use crate::shared::secret::is_credential;

/// Longest configuration file that is read, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// Reads the settings of the file at `path`.
///
/// # Errors
/// When it cannot be read, or has a password that others can read (status 1), or is not a
/// configuration (status 2): the line and, for a key that does not exist, the one that is meant.
pub(crate) fn read(path: &Path) -> Result<ServerSettings, Failure> {
    let name = path.display();
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::new(format!("cannot read {name}: {why}; give --config a readable TOML file"))
    };
    let file = open_believed(path).map_err(|error| unreadable(&error))?;
    let found = file.metadata().map_err(|error| unreadable(&error))?;
    // A group that may read it is how a service reads what is root's.
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let open = found.mode() & if is_own { 0o044 } else { 0o004 } != 0;
    let mut text = String::new();
    let read = file.take(LEN_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| unreadable(&error))? as u64 > LEN_MAX {
        return Err(unreadable(&"it is longer than 1 MiB"));
    }
    if open && !is_credential(path) && has_password(&text) {
        return Err(Failure::new(format!(
            "{name} has a password and others can read it: chmod 600 {name}"
        )));
    }
    parse(&text).map_err(|(line, what)| Failure::usage(format!("{name}:{line}: {what}")))
}

/// Returns whether a value is an address with a password in it.
fn has_password(text: &str) -> bool {
    fn any(value: &toml::Value) -> bool {
        match value {
            toml::Value::String(text) => text.split_once("://").is_some_and(|(scheme, rest)| {
                // Behind the first '/' is a path, where '@' is a letter as others. Not for servers
                // of Redis, whose password may have a '/' that was not escaped.
                let ends = if scheme.starts_with("redis") { &['?'][..] } else { &['/', '?'] };
                let login = rest.split(ends).next().unwrap_or(rest);
                login.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
            }),
            toml::Value::Array(values) => values.iter().any(any),
            toml::Value::Table(table) => table.values().any(any),
            _ => false,
        }
    }
    // Text that is not TOML is refused with its line.
    text.parse::<toml::Table>().is_ok_and(|table| table.values().any(any))
}

/// Returns the settings, or the number of the wrong line and the error.
fn parse(text: &str) -> Result<ServerSettings, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        (line, explain(error.message()))
    })
}

/// Returns the parser's message as one line, with the nearest key in the place of all of them.
fn explain(message: &str) -> String {
    // Names stand between backquotes: the unknown one first, then those that exist.
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next() {
        Some(unknown) if message.starts_with("unknown field") => {
            let near = names
                .map(|key| (strsim::jaro_winkler(unknown, key), key))
                .max_by(|(a, _), (b, _)| a.total_cmp(b));
            match near {
                Some((likeness, key)) if likeness > 0.7 => {
                    format!("unknown key '{unknown}'; did you mean '{key}'?")
                }
                _ => format!("unknown key '{unknown}' (the flags of zfold disk --help are keys)"),
            }
        }
        _ => message.lines().map(str::trim).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_password_is_its_owners_to_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zfold.toml");
        let disk = |place: &str| format!("[[disk]]\nsize = '1GiB'\nbacking = '{place}'\n");
        for (place, open, closed) in [
            ("redis://me:secret@host/?copies=2", false, true),
            ("rediss://:secret@host", false, true),
            ("redis://me@[::1]:7", true, true),
            ("redis://:sec/secret@host", false, true),
            ("nbd://me:secret@host/export", false, true),
            ("nbd://host/export:a@b", true, true),
            ("s3://bucket/a:b@c", true, true),
            ("redis://host:6379/", true, true),
            ("/var/tmp/a:b@c", true, true),
        ] {
            std::fs::write(&path, disk(place)).expect("written");
            for (mode, read) in [(0o644, open), (0o640, open), (0o604, open), (0o600, closed)] {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(&path, mode.clone()).expect("a mode");
                match super::read(&path) {
                    Ok(_) => assert!(read, "{place} {mode:?}"),
                    Err(refused) => {
                        let line = refused.line();
                        let remedy = format!("chmod 600 {}", path.display());
                        assert!(!read && line.contains(&remedy), "{place} {mode:?}: {line}");
                        assert!(!line.contains("secret"), "{line}");
                    }
                }
            }
        }
    }
}
