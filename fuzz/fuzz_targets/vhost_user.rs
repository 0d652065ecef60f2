//! What a monitor of a virtual machine does: messages with descriptors, queues, memory that is not
//! what it says or goes away. The server sees each one to its end, and serves the next.
//! What the bytes mean is told in `script.rs`, which is why this crate depends on rustix.

#![no_main]

#[path = "../../crates/disk/tests/monitor/script.rs"]
mod script;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use zfold_disk::vhost_user::VhostUserFrontend;
use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

const PAGES: u64 = 256;

/// One server for all inputs, at a socket named after the process.
static SERVER: LazyLock<(VhostUserFrontend, PathBuf)> = LazyLock::new(|| {
    let pool = zfold_pool::create("fuzz", &PoolOptions::default());
    let options = StoreOptions::new(PAGES, CodecKind::Lz4.into());
    let store = Store::new(pool.expect("the options are in range"), &options);
    let options = DiskOptions::new(PAGES * 4096).with_sector(SectorSize::B512);
    let disk = Disk::new(Arc::new(store.expect("the options are in range")), &options);
    let disk = Arc::new(disk.expect("the size is in range"));
    let socket = std::env::temp_dir().join(format!("zfold-fuzz-{}.sock", std::process::id()));
    let frontend = VhostUserFrontend::listen(disk, &socket, Some(2));
    (frontend.expect("a socket is to be had"), socket)
});

fuzz_target!(|data: &[u8]| {
    let (_, socket) = &*SERVER;
    script::play(socket, data, Duration::from_millis(1));
    script::assert_serves(socket);
});
