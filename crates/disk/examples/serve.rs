//! A disk inside a program: the program writes to it, clients reach it over NBD.

use std::sync::Arc;

use zfold_disk::nbd::{Listener, NbdOptions, NbdServer};
use zfold_disk::{Disk, DiskOptions};
use zfold_store::{CodecKind, Store, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let size = 1 << 30;
    let store = Arc::new(Store::open(&StoreOptions::new(size / 4096, CodecKind::Lz4.into()))?);
    let disk = Arc::new(Disk::new(store, &DiskOptions::new(size))?);
    disk.write(0, "hello from the program\n".repeat(100_000).as_bytes())?;
    let server = NbdServer::new(Arc::clone(&disk), NbdOptions::default());
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse()?)?;
    println!("a disk of 1 GiB: nbdcopy {} - | head", listener.uri(false));
    server.serve(listener)?;
    println!("2.3 MB of text take {} kB; ends with its input", disk.store().held_bytes() / 1000);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.shutdown(std::time::Duration::from_secs(10));
    println!("{} reads were served", disk.stats().reads_total);
    Ok(())
}
