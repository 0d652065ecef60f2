//! Files that are written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::shared::exit::Failure;

/// Where results are to go.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    /// The file that becomes the one at `path` when it is whole; none for what is no file, such as
    /// a terminal, which is written to as it is.
    sibling: Option<PathBuf>,
}

impl NewFile {
    /// Returns the file at `path`, which is left as it is until there is something to write.
    ///
    /// # Errors
    ///
    /// When it could not be written later: its directory is missing or may not be written to.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        // A link stays a link: what it leads to is written.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.is_dir() {
            return Err(refused(&path, "is a directory; name a file in it"));
        }
        let name = path.file_name().ok_or_else(|| refused(&path, "is not the name of a file"))?;
        if path.exists() && !path.is_file() {
            return Ok(Self { path, sibling: None });
        }
        let sibling = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        let file = Self { sibling: Some(path.with_file_name(sibling)), path };
        file.probe().map_err(|error| file.failure(&error))?;
        Ok(file)
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written; then what was there before is still there.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let written = match &self.sibling {
            None => OpenOptions::new()
                .write(true)
                .open(&self.path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
            Some(sibling) => self.replace(sibling, text),
        };
        written.map_err(|error| self.failure(&error))
    }

    /// Writes the sibling and puts it in the place of the file; leaves none behind.
    fn replace(&self, sibling: &Path, text: &str) -> io::Result<()> {
        let write = || {
            let mut file = created(sibling)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(sibling, &self.path)
        };
        write().inspect_err(|_| {
            // It may not have been created.
            let _ = fs::remove_file(sibling);
        })
    }

    /// Tries whether the sibling can be created.
    fn probe(&self) -> io::Result<()> {
        match &self.sibling {
            Some(sibling) => created(sibling).and_then(|_| fs::remove_file(sibling)),
            None => Ok(()),
        }
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

/// Creates a file. What is left there of a process of the same number, or was put there, such as a
/// link, is not written to.
fn created(path: &Path) -> io::Result<File> {
    // Mostly there is none.
    let _ = fs::remove_file(path);
    File::options().write(true).create_new(true).open(path)
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
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
        let sibling = format!(".a.html.{}.part", std::process::id());
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
    fn device_stays_a_device() {
        NewFile::at(Path::new("/dev/null")).expect("a place").write("text").expect("written");
        assert!(!Path::new("/dev/null").is_file());
    }
}
