//! Files that are written whole or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use zfold_store::files::{Readers, check_special, followed, open_special, replace, try_replace};

use crate::exit::Failure;

/// Where results are to go.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// Whether it is written to as it is, being no file but, say, a terminal.
    special: bool,
}

impl NewFile {
    /// Returns the file at `path`, which is left as it is until there is something to write.
    ///
    /// # Errors
    ///
    /// When it could not be written later: its directory is missing or may not be written to, or
    /// another user may have put there what is there.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        let mut file = Self { path: path.to_owned(), special: false };
        if path.is_dir() {
            return Err(refused(path, "is a directory; name a file in it"));
        }
        path.file_name().ok_or_else(|| refused(path, "is not the name of a file"))?;
        let tried = followed(path).and_then(|end| {
            // A link of the kernel's own, such as /dev/stderr, leads to what is open: that is not
            // replaced, whatever it is.
            let is_link = fs::symlink_metadata(end).is_ok_and(|found| !found.is_file());
            file.special = is_link || fs::metadata(path).is_ok_and(|found| !found.is_file());
            if file.special { check_special(path) } else { try_replace(path) }
        });
        tried.map_err(|error| file.failure(&error))?;
        Ok(file)
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then what was there before is still there.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        let written = match self.special {
            true => open_special(&self.path).and_then(|mut file| file.write_all(text.as_bytes())),
            false => replace(&self.path, Readers::AsBefore, |out| out.write_all(text.as_bytes())),
        };
        written.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => refused(
                &self.path,
                &format!("there is no directory {}; create it", directory.display()),
            ),
            io::ErrorKind::PermissionDenied => {
                refused(&self.path, "permission denied; name a file that you may write")
            }
            _ => refused(&self.path, &format!("{error}; free some space or name another file")),
        }
    }
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns an empty directory for one test.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("zfold-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_there_before_it_is_whole() {
        let directory = directory("whole");
        let path = directory.join("a.html");
        let file = NewFile::at(&path).expect("a place");
        assert_eq!(names(&directory), Vec::<String>::new());
        file.write("old").expect("written");
        NewFile::at(&path).expect("a place").write("new").expect("written");
        assert_eq!(names(&directory), ["a.html"]);
        assert_eq!(fs::read_to_string(&path).expect("text"), "new");
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn failure_leaves_what_was_there() {
        let directory = directory("failure");
        let path = directory.join("a.html");
        let file = NewFile::at(&path).expect("a place");
        fs::create_dir(&path).expect("a directory in the way");
        assert!(file.write("new").is_err());
        assert_eq!(names(&directory), ["a.html"]);
        assert!(NewFile::at(&path).is_err(), "a directory is no file");
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn link_stays_a_link() {
        let directory = directory("link");
        let (target, link) = (directory.join("target"), directory.join("link"));
        fs::write(&target, "old").expect("a file");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        NewFile::at(&link).expect("a place").write("new").expect("written");
        assert_eq!(fs::read_to_string(&target).expect("text"), "new");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn planted_link_leads_nowhere() {
        let directory = directory("planted");
        let (path, victim) = (directory.join("a.html"), directory.join("victim"));
        fs::write(&victim, "precious").expect("a file");
        let sibling = format!("a.html.part{}", std::process::id());
        std::os::unix::fs::symlink(&victim, directory.join(&sibling)).expect("a link");
        let file = NewFile::at(&path).expect("a place");
        std::os::unix::fs::symlink(&victim, directory.join(&sibling)).expect("a link");
        file.write("new").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("text"), "precious");
        assert_eq!(fs::read_to_string(&path).expect("text"), "new");
        assert_eq!(names(&directory), ["a.html", "victim"]);
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn a_file_that_only_its_owner_could_read_stays_one() {
        let directory = directory("mode");
        let path = directory.join("a.html");
        let mode = || fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        NewFile::at(&path).expect("a place").write("new").expect("written");
        let new = mode();
        assert_eq!(new & 0o600, 0o600);
        for kept in [0o600, 0o640, 0o664] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).expect("a mode");
            NewFile::at(&path).expect("a place").write("newer").expect("written");
            assert_eq!(mode(), kept, "{kept:o}");
        }
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn what_cannot_be_written_to_is_refused_before_the_work() {
        let directory = directory("socket");
        let path = directory.join("a.html");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let refused = NewFile::at(&path).expect_err("refused");
        assert!(refused.line().contains("it is a socket"), "{}", refused.line());
        fs::remove_dir_all(directory).expect("a directory");
    }

    #[test]
    fn device_stays_a_device() {
        NewFile::at(Path::new("/dev/null")).expect("a place").write("text").expect("written");
        assert!(!Path::new("/dev/null").is_file());
    }
}
