//! What the tests of the frontends share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};
use zfold_testing::process::Killed;

/// A device of `size` bytes.
pub(crate) fn disk(size: u64, read_only: bool) -> Arc<Disk> {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let options = StoreOptions::new(size / 4096, CodecKind::Lz4.into());
    let store = Store::new(pool, &options).unwrap();
    let options = DiskOptions::new(size).with_sector(SectorSize::B512).with_read_only(read_only);
    Arc::new(Disk::new(Arc::new(store), &options).unwrap())
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

/// A child that is ended when the test is, and what it has printed.
#[derive(Debug)]
pub(crate) struct Child(Killed);

impl Child {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Self(Killed(child.unwrap_or_else(|e| panic!("{command:?}: {e}"))))
    }

    /// Waits for its end, and returns what it printed.
    pub(crate) fn output(mut self) -> String {
        let mut printed = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
        self.0.wait().unwrap();
        String::from_utf8_lossy(&printed).into_owned()
    }
}
