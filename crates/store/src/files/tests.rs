//! Tests of files by name: links, planted files, modes, and what is no file.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{lchown, symlink};

use super::*;

/// Another user.
const OTHER: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

/// Returns whether files can be given to another user, and says if not.
fn can_plant() -> bool {
    let can = geteuid().is_root();
    if !can {
        zfold_testing::skip("only root gives files away");
    }
    can
}

fn replaced(path: &Path) -> io::Result<()> {
    replace(path, Readers::AsBefore, |out| out.write_all(b"new"))
}

#[test]
fn links_of_this_user_are_followed_to_their_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    symlink("second", at("first")).expect("a link");
    symlink(at("target"), at("second")).expect("a link");
    assert_eq!(followed(&at("first")).expect("followed"), at("target"));
    fs::write(at("target"), "old").expect("written");
    replaced(&at("first")).expect("replaced");
    assert_eq!(fs::read(at("target")).expect("bytes"), b"new");
    assert!(at("first").is_symlink() && at("second").is_symlink());
    symlink("loop", at("loop")).expect("a link");
    followed(&at("loop")).expect_err("it never ends");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 4);
}

#[test]
fn a_planted_link_is_not_followed() {
    zfold_testing::needs!(can_plant());
    let folder = tempfile::tempdir().expect("a folder");
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    fs::write(&target, "precious").expect("written");
    symlink(&target, &link).expect("a link");
    lchown(&link, Some(OTHER), None).expect("given away");
    for open_to_all in [0o1777, 0o777, 0o775] {
        set_mode(folder.path(), open_to_all);
        for refused in [
            followed(&link).map(drop),
            replaced(&link),
            try_replace(&link),
            open_believed(&link).map(drop),
        ] {
            assert!(refused.expect_err("refused").to_string().contains("another user"));
        }
        assert_eq!(fs::read(&target).expect("bytes"), b"precious");
    }
    // Where only root puts links, and where the folder's owner does.
    set_mode(folder.path(), 0o755);
    replaced(&link).expect("it is not planted");
    set_mode(folder.path(), 0o775);
    lchown(folder.path(), Some(OTHER), None).expect("given away");
    replaced(&link).expect("it is not planted");
}

#[test]
fn a_planted_file_is_not_believed() {
    zfold_testing::needs!(can_plant());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "lies").expect("written");
    lchown(&path, Some(OTHER), None).expect("given away");
    set_mode(folder.path(), 0o1777);
    open_believed(&path).expect_err("refused");
    open_special(&path).expect_err("refused");
    set_mode(folder.path(), 0o755);
    open_believed(&path).expect("it is not planted");
}

#[test]
fn a_file_that_everybody_may_write_to_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "truth").expect("written");
    for open_to_all in [0o666, 0o602] {
        set_mode(&path, open_to_all);
        let refused = open_believed(&path).expect_err("refused");
        assert!(refused.to_string().contains("chmod o-w"), "{refused}");
    }
    for kept in [0o600, 0o644, 0o664] {
        set_mode(&path, kept);
        let mut text = String::new();
        let read = open_believed(&path).and_then(|mut file| file.read_to_string(&mut text));
        assert_eq!((read.expect("believed"), &*text), (5, "truth"));
    }
}

#[test]
fn what_the_system_links_to_is_read() {
    let mut null = open_believed(Path::new("/dev/null")).expect("everybody may write to it");
    assert_eq!(null.read(&mut [0]).expect("read"), 0);
    let (pipe, mut writer) = io::pipe().expect("a pipe");
    writer.write_all(b"said").expect("written");
    drop(writer);
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut text = String::new();
    let opened = open_believed(Path::new(&path));
    opened.and_then(|mut file| file.read_to_string(&mut text)).expect("read");
    assert_eq!(text, "said");
}

#[test]
fn what_is_opened_to_be_read_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    let (fifo, mode) = (FileType::Fifo, Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(CWD, &path, fifo, mode, 0).expect("a fifo");
    let socket = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    for (path, why) in [(&*path, "FIFO"), (&*socket, "socket"), (folder.path(), "Is a directory")] {
        for refused in [open_to_read(path), open_believed(path)] {
            let refused = refused.expect_err("no file").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
    // What a pipe without a name does not have yet is waited for.
    let (pipe, mut writer) = io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut file = open_to_read(Path::new(&path)).expect("it has a writer");
    std::thread::scope(|scope| {
        let read = scope.spawn(move || file.read(&mut [0; 4]));
        std::thread::sleep(std::time::Duration::from_millis(10));
        writer.write_all(b"said").expect("written");
        assert_eq!(read.join().expect("no panic").expect("read"), 4);
    });
}

#[test]
fn holes_are_no_data() {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(8 << 30).expect("a hole");
    assert_eq!(next_data(&file, 0, 8 << 30).expect("a range"), None);
    let at = 4 << 30;
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", at).expect("written");
    let found = next_data(&file, 0, 8 << 30).expect("a range").expect("data");
    assert!(found.contains(&at) && found.end - found.start <= 1 << 20, "{found:?}");
    assert_eq!(next_data(&file, found.end, 8 << 30).expect("a range"), None);
    assert_eq!(next_data(&file, at + 1, at + 2).expect("a range"), Some(at + 1..at + 2));
}

#[test]
fn no_more_can_read_a_file_than_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    for kept in [0o600, 0o640, 0o666] {
        fs::write(&path, "old").expect("written");
        set_mode(&path, kept);
        replaced(&path).expect("replaced");
        assert_eq!(mode(&path), kept, "{kept:o}");
        replace(&path, Readers::Owner, |out| out.write_all(b"new")).expect("replaced");
        assert_eq!(mode(&path), 0o600);
    }
    if can_plant() {
        // What another user permits is not this user's wish.
        set_mode(&path, 0o666);
        lchown(&path, Some(OTHER), None).expect("given away");
        replaced(&path).expect("replaced");
        assert_eq!(mode(&path), 0o600);
    }
}

#[test]
fn a_file_keeps_its_group() {
    zfold_testing::needs!(can_plant());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "old").expect("written");
    lchown(&path, None, Some(OTHER)).expect("given to a group");
    set_mode(&path, 0o640);
    replaced(&path).expect("replaced");
    let found = fs::metadata(&path).expect("it is there");
    assert_eq!((found.gid(), found.mode() & 0o777), (OTHER, 0o640));
}

#[test]
fn a_folder_that_cannot_be_synced_is_no_failure() {
    for errno in [Errno::INVAL, Errno::ACCESS, Errno::NOTSUP, Errno::NOSYS] {
        synced(Err(errno.into())).expect("the file is there");
    }
    for errno in [Errno::IO, Errno::NOSPC] {
        synced(Err(errno.into())).expect_err("its name may be lost");
    }
    // A file that cannot be synced at all.
    sync_folder(Path::new("/dev/null")).expect("no failure");
    sync_folder(Path::new("/")).expect("synced");
}

#[test]
fn what_can_be_opened_later_is_known_before() {
    check_special(Path::new("/dev/null")).expect("everybody may write to it");
    let (pipe, _writer) = io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    check_special(Path::new(&path)).expect("it is this user's");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    open_special(&path).expect_err("no file");
    check_special(&path).expect_err("no file");
    if can_plant() {
        let path = folder.path().join("fifo");
        let (fifo, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(CWD, &path, fifo, mode, 0).expect("a fifo");
        // It has no reader, and is not waited for.
        check_special(&path).expect("it is this user's");
        lchown(&path, Some(OTHER), None).expect("given away");
        set_mode(folder.path(), 0o1777);
        check_special(&path).expect_err("it is planted");
    }
}
