//! File systems on the device: they keep what is written, give memory back, and are whole at the
//! end.

use std::fs;
use std::path::PathBuf;

use zfold_testing::wait_until;

use crate::looped::{Frontend, Looped};
use crate::server::text;
use crate::tools::{fio, run, seconds};

/// A kind of file system, and how it is made and checked.
struct Kind {
    name: &'static str,
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: Kind =
    Kind { name: "ext4", make: &["mkfs.ext4", "-q", "-F"], check: &["e2fsck", "-fn"] };
const BTRFS: Kind = Kind {
    name: "btrfs",
    make: &["mkfs.btrfs", "-q", "-f"],
    check: &["btrfs", "check", "--readonly"],
};
const XFS: Kind =
    Kind { name: "xfs", make: &["mkfs.xfs", "-q", "-f"], check: &["xfs_repair", "-n"] };

impl Kind {
    fn make(&self, on: &Looped) {
        run(self.make[0], &[&self.make[1..], &[on.device.as_str()]].concat());
    }

    fn check(&self, on: &Looped) {
        run(self.check[0], &[&self.check[1..], &[on.device.as_str()]].concat());
    }
}

/// A test for each line: its name, the file system, and how its device becomes a file.
macro_rules! file_systems {
    ($($name:ident: $kind:ident, $frontend:ident;)*) => {
        $(#[test] fn $name() { live(&$kind, Frontend::$frontend); })*
    };
}

file_systems! {
    ext4_through_fuse: EXT4, Fuse;
    btrfs_through_fuse: BTRFS, Fuse;
    xfs_through_fuse: XFS, Fuse;
    ext4_through_nbd: EXT4, Nbdfuse;
    btrfs_through_nbd: BTRFS, Nbdfuse;
    xfs_through_nbd: XFS, Nbdfuse;
}

/// The whole life of a file system.
fn live(kind: &Kind, frontend: Frontend) {
    let programs = ["fio", "fs_mark", "stress-ng", "fstrim", "tar"];
    let programs = [&programs[..], &[kind.make[0], kind.check[0]]].concat();
    let Some(on) = Looped::new(frontend, "1GiB", &programs) else { return };
    kind.make(&on);
    on.mount(kind.name);
    write_and_verify(&on);
    run_many(&on);
    let tree = Tree::new(&on);
    let (pages, bytes) = on.held();

    // Not what the kernel remembers, but what the device holds.
    on.umount();
    on.mount(kind.name);
    tree.check();
    for entry in fs::read_dir(&on.at).expect("a directory") {
        run("rm", &["-rf", text(&entry.expect("an entry").path())]);
    }
    // Some file systems free in their own time.
    wait_until("fstrim gives memory back", || {
        run("sync", &["-f", text(&on.at)]);
        run("fstrim", &[text(&on.at)]);
        let (pages_left, bytes_left) = on.held();
        println!("{pages} pages in {bytes} bytes; after fstrim {pages_left} in {bytes_left}");
        pages_left < pages / 2 && bytes_left < bytes / 2
    });
    on.umount();
    kind.check(&on);
    on.finish();
}

/// What fio writes comes back, block by block, and under 32 jobs at a time.
fn write_and_verify(on: &Looped) {
    let (dir, seconds) = (on.dir.path(), seconds());
    let target = |name: &str| format!("--filename={}", on.at.join(name).display());
    fio(
        dir,
        &target("one at a time"),
        "--ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=16m --verify=crc32c \
         --verify_fatal=1 --do_verify=1",
    );
    let loops = 1 + seconds / 3;
    fio(
        dir,
        &target("many sizes"),
        &format!(
            "--ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bsrange=4k-64k --size=32m \
             --loops={loops} --verify=crc32c --verify_fatal=1 --do_verify=1"
        ),
    );
    fio(
        dir,
        &target("many jobs"),
        &format!(
            "--ioengine=psync --direct=1 --rw=randrw --bs=4k --size=128m --numjobs=32 --time_based \
             --runtime={seconds}"
        ),
    );
}

/// Programs that were written to find faults in file systems and what is below them.
fn run_many(on: &Looped) {
    let at = |name: &str| {
        let path = on.at.join(name);
        fs::create_dir(&path).expect("a directory");
        text(&path).to_owned()
    };
    let log = on.dir.path().join("fs_mark.log");
    let marks = ["-d", &at("fs_mark"), "-l", text(&log)];
    run("fs_mark", &[&marks[..], &["-s", "100000", "-n", "20", "-t", "32", "-k"]].concat());
    let stress = ["--hdd", "2", "--hdd-bytes", "32M", "--hdd-opts", "direct,wr-rnd,rd-rnd"];
    let place = ["--temp-path", &at("stress"), "--verify", "-t", &seconds().to_string()];
    run("stress-ng", &[&stress[..], &place].concat());
}

/// The sources that this program is built from, beside the device and on it.
struct Tree {
    beside: PathBuf,
    on: PathBuf,
}

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

impl Tree {
    fn new(on: &Looped) -> Self {
        let tree = Self { beside: on.dir.path().join("sources"), on: on.at.join("sources") };
        for (from, to) in [(SOURCES, &tree.beside), (text(&tree.beside), &tree.on)] {
            fs::create_dir(to).expect("a directory");
            let copy = format!("tar -C '{from}' -cf - . | tar -C '{}' -xf -", to.display());
            run("sh", &["-c", &copy]);
        }
        tree
    }

    fn check(&self) {
        run("diff", &["-r", "--no-dereference", text(&self.beside), text(&self.on)]);
    }
}

#[test]
fn fsx_finds_no_fault() {
    let Some(on) = Looped::new(Frontend::Fuse, "512MiB", &["fsx", "mkfs.ext4"]) else { return };
    EXT4.make(&on);
    on.mount("ext4");
    let operations = (1000 * seconds()).to_string();
    let file = on.at.join("file");
    run("fsx", &["-N", &operations, "-S", "7", text(&file)]);
    on.umount();
    EXT4.check(&on);
    on.finish();
}
