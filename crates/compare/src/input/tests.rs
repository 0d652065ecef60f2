//! Tests of reading inputs.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::*;

const ALL: Sampling = Sampling { limit_bytes: 1 << 30, seed: 1 };

/// A file below the temporary directory that is removed with the value.
struct TemporaryFile(std::path::PathBuf);

impl TemporaryFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let folder = std::env::temp_dir().join(format!("zfold-input-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary directory");
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("temporary file");
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("temporary file");
    }
}

#[test]
fn builtin_captures_have_their_pages() {
    let sets: Vec<_> = PageSet::builtin(4096).collect();
    let names: Vec<_> = sets.iter().map(PageSet::name).collect();
    assert_eq!(names, ["cc1", "node", "numpy", "postgres", "rustc"]);
    assert!(sets.iter().all(|set| set.len() == 1024));
}

#[test]
fn holes_of_a_file_are_left_out_and_not_read() {
    let file = TemporaryFile::new("sparse", b"");
    let sparse = std::fs::File::options().write(true).open(&file.0).expect("a file");
    sparse.set_len(100 << 30).expect("a hole");
    for (byte, at) in [(1, 10 << 30), (2, 50 << 30), (3, (100 << 30) - 4096)] {
        sparse.write_all_at(&[byte; 4096], at).expect("written");
    }
    let all = PageSet::from_file(&file.0, 4096, ALL).expect("pages");
    assert_eq!((all.len(), all.population()), (3, 3));
    assert!(all.pages().zip(1..).all(|(page, byte)| page == [byte; 4096]));
    let sampling = Sampling { limit_bytes: 8192, seed: 1 };
    let some = PageSet::from_file(&file.0, 4096, sampling).expect("pages");
    assert_eq!((some.len(), some.population()), (2, 3));
    assert!(some.pages().all(|page| all.pages().any(|other| other == page)));
    // Nothing but a hole.
    sparse.set_len(0).and_then(|()| sparse.set_len(100 << 30)).expect("a hole");
    let error = PageSet::from_file(&file.0, 4096, ALL).expect_err("no data");
    assert!(matches!(error, InputError::Empty { .. }), "{error}");
}

#[test]
fn what_is_no_file_is_refused_or_has_a_bound() {
    let fifo = TemporaryFile::new("fifo", b"");
    std::fs::remove_file(&fifo.0).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&fifo.0).status();
    assert!(made.is_ok_and(|status| status.success()), "a FIFO");
    let refused = PageSet::from_file(&fifo.0, 4096, ALL).expect_err("it has no writer").to_string();
    assert!(refused.contains("it is a FIFO"), "{refused}");
    let zero = Path::new("/dev/zero");
    let sampling = Sampling { limit_bytes: 8192, seed: 1 };
    assert_eq!(PageSet::from_file(zero, 4096, sampling).expect("pages").len(), 2);
}

#[test]
fn last_page_of_a_file_is_filled_with_zeros() {
    let file = TemporaryFile::new("any.bin", &[1; 5000]);
    let pages = PageSet::from_file(&file.0, 4096, ALL).expect("readable");
    assert_eq!((pages.name(), pages.len()), ("any.bin", 2));
    assert_eq!(pages.page(1)[..904], [1; 904]);
    assert_eq!(pages.page(1)[904..], [0; 3192]);
}

#[test]
fn large_file_is_sampled_in_order() {
    let bytes: Vec<u8> = (0..100u8).flat_map(|page| [page; 4096]).collect();
    let file = TemporaryFile::new("large.bin", &bytes[..bytes.len() - 1]);
    let sampling = Sampling { limit_bytes: 10 * 4096, seed: 3 };
    let pages = PageSet::from_file(&file.0, 4096, sampling).expect("readable");
    assert_eq!((pages.len(), pages.population()), (10, 100));
    let firsts: Vec<u8> = (0..10).map(|index| pages.page(index)[0]).collect();
    assert!(firsts.is_sorted_by(|a, b| a < b), "{firsts:?}");
}

#[test]
fn own_memory_is_found_and_sampled() {
    let marked = std::hint::black_box(vec![0xa5u8; 8 << 20]);
    let pid = std::process::id();
    let sampling = Sampling { limit_bytes: 1 << 40, seed: 1 };
    let pages = PageSet::from_process(pid, 4096, sampling).expect("own process");
    let found = (0..pages.len()).filter(|&index| pages.page(index) == [0xa5; 4096]).count();
    assert!(found >= 2047, "{found}");
    let sampling = Sampling { limit_bytes: 64 << 10, seed: 1 };
    let few = PageSet::from_process(pid, 16384, sampling).expect("own process");
    assert!(few.len() <= 4 && few.population() > 4);
    drop(marked);
}

#[test]
fn refused_process_is_told_apart() {
    let refused = |code| InputError::unreadable_process(7, io::Error::from_raw_os_error(code));
    assert!(matches!(refused(13), InputError::NotPermitted { pid: 7 }));
    assert!(matches!(refused(1), InputError::NotPermitted { pid: 7 }));
    assert!(matches!(refused(3), InputError::NoProcess { pid: 7 }));
    assert!(matches!(refused(5), InputError::ProcessUnreadable { .. }));
}
