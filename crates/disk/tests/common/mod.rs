//! What the tests of the frontends share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

/// A device of `size` bytes, which may grow to twice that.
pub(crate) fn disk(size: u64, read_only: bool) -> Arc<Disk> {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let options = StoreOptions::new(size / 4096 * 2, CodecKind::Lz4.into());
    let store = Store::new(pool, &options).unwrap();
    let options = DiskOptions::new(size).with_sector(SectorSize::B512).with_read_only(read_only);
    Arc::new(Disk::new(Arc::new(store), &options).unwrap())
}

/// Says that a test did not run.
pub(crate) fn skip(test: &str, reason: &str) {
    // Not by a macro, whose output the test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Returns whether the process is root's.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether a program can be started.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Runs a program and returns what it printed; an error is what it complained of.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {printed} {complaint}", output.status))
}

/// Numbers that look random: the same for the same seed, on every machine.
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Bytes of which about half can be compressed away.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(len);
        while bytes.len() < len {
            let word = self.next().to_le_bytes();
            bytes.extend_from_slice(&word);
            bytes.extend_from_slice(b"and half");
        }
        bytes.truncate(len);
        bytes
    }
}

/// A child that is ended when the test is, and what it has printed.
#[derive(Debug)]
pub(crate) struct Child(std::process::Child);

impl Child {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Self(child.unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }

    /// Waits for its end, and returns what it printed.
    pub(crate) fn output(mut self) -> String {
        let mut printed = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
        self.0.wait().unwrap();
        String::from_utf8_lossy(&printed).into_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
