//! The FUSE frontend, through the kernel.
//!
//! - What is written comes back, from any offset and at any length, also by many threads at once.
//! - Punched and zeroed ranges give their memory back and show up as holes.
//! - The length never changes.
//! - Mounts leave nothing behind.
//!
//! File systems on a loop device over the file are tested where the program is.

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;

use common::run;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use tempfile::TempDir;
use zfold_disk::Disk;
use zfold_disk::fuse::{FuseError, FuseFrontend};
use zfold_testing::skip::{installed, is_root, skip};
use zfold_testing::wait::at_once;
use zfold_testing::{Random, needs};

const MIB: u64 = 1 << 20;

/// A mounted device and the directory it lies in, which goes last.
struct Mounted {
    frontend: FuseFrontend,
    disk: Arc<Disk>,
    _dir: TempDir,
}

/// Mounts a device, or says why the test does not run.
fn mounted(disk: Arc<Disk>) -> Option<Mounted> {
    let dir = tempfile::tempdir().unwrap();
    match FuseFrontend::mount(disk.clone(), &dir.path().join("disk")) {
        Ok(frontend) => Some(Mounted { frontend, disk, _dir: dir }),
        Err(error @ (FuseError::NoDriver | FuseError::DriverDenied | FuseError::NoHelper)) => {
            skip(error);
            None
        }
        Err(FuseError::Mount(error)) if !is_root() => {
            skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Mounted {
    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.frontend.path()).unwrap()
    }
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn the_length_is_the_devices() {
    let Some(on) = mounted(common::disk(MIB, false)) else { return };
    let file = on.open();
    assert_eq!(fs::metadata(on.frontend.path()).unwrap().len(), MIB);
    assert_eq!(errno(file.write_at(&[1], MIB)), Some(28), "ENOSPC");
    assert_eq!(file.write_at(&[1; 100], MIB - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 100], MIB - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 100], MIB).unwrap(), 0);
    for len in [0, 1, MIB - 512, MIB + 512, 2 * MIB] {
        assert_eq!(errno(file.set_len(len)), Some(22), "EINVAL, as of a block device");
    }
    file.set_len(MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), MIB);
    let mode = fs::Permissions::from_mode(0o666);
    assert_eq!(errno(fs::set_permissions(on.frontend.path(), mode)), Some(1), "EPERM");
}

#[test]
fn a_file_opened_to_be_written_anew_is_zeros() {
    let Some(on) = mounted(common::disk(MIB, false)) else { return };
    on.disk.write(0, &Random::new(3).half_noise(MIB as usize)).unwrap();
    let file = OpenOptions::new().write(true).truncate(true).open(on.frontend.path()).unwrap();
    assert_eq!(on.disk.store().len(), 0);
    assert_eq!(file.metadata().unwrap().len(), MIB);
    // Copied with holes, over other bytes: what the copy skips is believed to be zeros.
    let image = on.frontend.path().with_file_name("image");
    let sparse = File::create(&image).unwrap();
    sparse.set_len(MIB).unwrap();
    sparse.write_all_at(&Random::new(4).half_noise(100_000), 300_000).unwrap();
    let paths = [image.to_str().unwrap(), on.frontend.path().to_str().unwrap()];
    for how in ["--sparse=auto", "--sparse=always", "--sparse=never"] {
        on.disk.write(0, &Random::new(5).half_noise(MIB as usize)).unwrap();
        run("cp", &[how, paths[0], paths[1]]).unwrap();
        assert!(fs::read(&image).unwrap() == fs::read(on.frontend.path()).unwrap(), "{how}");
    }
    on.disk.write(0, &Random::new(6).half_noise(MIB as usize)).unwrap();
    let [from, to] =
        [("if", paths[0]), ("of", paths[1])].map(|(way, path)| format!("{way}={path}"));
    run("dd", &[&from, &to]).unwrap();
    assert!(fs::read(&image).unwrap() == fs::read(on.frontend.path()).unwrap());
}

/// Writes through one mapping and reads through it and another.
const MAP: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
one, other = mmap.mmap(f, 0), mmap.mmap(f, 0)
for at in range(0, len(one), 100_000): one[at:at + 5000] = bytes([at % 251 + 1]) * 5000
for at in range(0, len(one), 100_000): assert other[at:at + 5000] == bytes([at % 251 + 1]) * 5000
assert os.pread(f, 5000, 100_000) == other[100_000:105_000]
os.pwrite(f, b'written', 200_000)
assert one[200_000:200_007] == b'written'
one.flush()
";

#[test]
fn the_file_can_be_mapped() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(6)) {
        return skip("Linux 6.6 is the first that maps such files");
    }
    needs!(installed(&["python3"]));
    let Some(on) = mounted(common::disk(MIB, false)) else { return };
    run("python3", &["-c", MAP, on.frontend.path().to_str().unwrap()]).unwrap();
    let mut back = vec![0; MIB as usize];
    on.disk.read(0, &mut back).unwrap();
    assert_eq!(&back[200_000..200_007], b"written", "on the device");
    for at in (300_000..MIB as usize).step_by(100_000) {
        let len = 5000.min(MIB as usize - at);
        assert!(back[at..at + len].iter().all(|&byte| byte == (at % 251 + 1) as u8), "{at}");
    }
}

#[test]
fn punched_ranges_are_holes_and_hold_no_memory() {
    let Some(on) = mounted(common::disk(MIB, false)) else { return };
    let file = on.open();
    file.write_all_at(&Random::new(2).half_noise(MIB as usize), 0).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), MIB / 512);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 8192, 65536).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 131_072, 4096).unwrap();
    let zero_keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, zero_keep, MIB - 4096, MIB).unwrap();
    assert_eq!(on.disk.store().len(), 256 - 16 - 1 - 1);
    let find = |from| seek(&file, from).unwrap();
    assert_eq!(find(SeekFrom::Hole(0)), 8192);
    assert_eq!(find(SeekFrom::Data(8192)), 8192 + 65536);
    assert_eq!(find(SeekFrom::Data(9000)), 8192 + 65536);
    assert_eq!(find(SeekFrom::Hole(131_080)), 131_080);
    assert_eq!(find(SeekFrom::Hole(200_000)), MIB - 4096);
    let nothing = seek(&file, SeekFrom::Data(MIB - 10)).unwrap_err();
    assert_eq!(nothing, rustix::io::Errno::NXIO);
    let more = fallocate(&file, FallocateFlags::ZERO_RANGE, MIB - 10, 20).unwrap_err();
    assert_eq!(more, rustix::io::Errno::NOSPC);
    let reserve = fallocate(&file, FallocateFlags::empty(), 0, 4096).unwrap_err();
    assert_eq!(reserve, rustix::io::Errno::OPNOTSUPP);
    assert_eq!(file.metadata().unwrap().len(), MIB);
}

#[test]
fn threads_do_not_get_in_each_others_way() {
    let (threads, span) = (4, 2 * MIB);
    let Some(on) = mounted(common::disk(threads * span, false)) else { return };
    at_once(0..threads, |thread| {
        // Neighbours share the page at their border.
        let begin = thread * span + if thread > 0 { 100 } else { 0 };
        check_against_model(&on.open(), begin, span - 100, thread);
    });
    on.open().sync_all().unwrap();
    assert_eq!(on.disk.stats().flushes_total, 1);
    let mut all = vec![0; (threads * span) as usize];
    on.disk.read(0, &mut all).unwrap();
    assert!(fs::read(on.frontend.path()).unwrap() == all, "the file is the device");
    on.disk.store().check();
}

/// Changes a part of the file at random beside a plain copy of it.
fn check_against_model(file: &File, begin: u64, span: u64, seed: u64) {
    let (mut numbers, mut model) = (Random::new(seed), vec![0; span as usize]);
    for step in 0..400 {
        let offset = numbers.below(span);
        let len = numbers.below((span - offset).min([50_000, 1 << 20][step / 8 % 2])) as usize + 1;
        let range = offset as usize..offset as usize + len;
        match numbers.below(4) {
            0 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, punch, begin + offset, len as u64).unwrap();
                model[range].fill(0);
            }
            1 => {
                let mut back = vec![0; len];
                file.read_exact_at(&mut back, begin + offset).unwrap();
                assert!(back == model[range], "seed {seed}, step {step}: {len} bytes at {offset}");
            }
            _ => {
                let data = numbers.half_noise(len);
                file.write_all_at(&data, begin + offset).unwrap();
                model[range].copy_from_slice(&data);
            }
        }
    }
    let mut back = vec![0; span as usize];
    file.read_exact_at(&mut back, begin).unwrap();
    assert!(back == model, "seed {seed}");
}

#[test]
fn a_read_only_device_takes_no_writes() {
    let Some(on) = mounted(common::disk(MIB, true)) else { return };
    let error = errno(OpenOptions::new().write(true).open(on.frontend.path()));
    assert_eq!(error, Some(30), "EROFS");
    let file = File::open(on.frontend.path()).unwrap();
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
}

/// Times that no calendar has: the file has none, and its threads bear them.
#[test]
fn times_at_the_ends_of_time_are_taken_and_forgotten() {
    let Some(on) = mounted(common::disk(MIB, false)) else { return };
    let file = on.open();
    let before = file.metadata().unwrap().mtime();
    for tv_sec in [0, -1, 1 << 40, -1 << 40, i64::MAX, i64::MIN + 1, i64::MIN] {
        for tv_nsec in [0, 1, 999_999_999] {
            let time = rustix::fs::Timespec { tv_sec, tv_nsec };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            // More often than there are threads.
            for _ in 0..20 {
                rustix::fs::futimens(&file, &times)
                    .unwrap_or_else(|error| panic!("{tv_sec} s, {tv_nsec} ns: {error}"));
            }
        }
    }
    assert_eq!(file.metadata().unwrap().mtime(), before);
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
}

#[test]
fn a_mount_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let mount = || FuseFrontend::mount(common::disk(MIB, false), &path);
    fs::write(&path, "what was there").unwrap();
    let Some(made) = mounted(common::disk(MIB, false)) else { return };
    let made_path = made.frontend.path().to_owned();
    drop(made.frontend);
    assert!(!made_path.exists(), "the file was made for the mount");

    let mut frontend = mount().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB);
    assert!(matches!(mount(), Err(FuseError::Mounted)));
    frontend.umount().unwrap();
    frontend.umount().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"what was there");
    let on_dir = FuseFrontend::mount(common::disk(MIB, false), dir.path());
    assert!(matches!(on_dir, Err(FuseError::NotAFile)));
}

#[test]
fn a_file_in_use_stays_until_it_is_closed() {
    needs!(is_root(), "needs root: fusermount3 unmounts a file in use");
    let Some(mut on) = mounted(common::disk(MIB, false)) else { return };
    let file = on.open();
    assert!(matches!(on.frontend.umount(), Err(FuseError::Busy)));
    assert!(matches!(on.frontend.umount(), Err(FuseError::Busy)));
    file.write_all_at(b"still served", 5).unwrap();
    let path = on.frontend.path().to_owned();
    drop(on.frontend);
    assert!(!path.exists(), "gone from its path");
    let mut back = [0; 12];
    file.read_exact_at(&mut back, 5).unwrap();
    assert_eq!(&back, b"still served");
}
