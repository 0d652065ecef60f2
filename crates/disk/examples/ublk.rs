//! Serves a block device of 256 MiB in compressed memory, until its input ends.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;

use zfold_disk::ublk::UblkFrontend;
use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::PoolOptions;
use zfold_store::{CodecKind, Store, StoreOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let size = 256 << 20;
    let pool = zfold_pool::create("ublk", &PoolOptions::default())?;
    let store = Store::new(pool, &StoreOptions::new(size / 4096, CodecKind::Lz4.into()))?;
    let options = DiskOptions::new(size).with_sector(SectorSize::B512);
    let disk = Arc::new(Disk::new(Arc::new(store), &options)?);
    let frontend = UblkFrontend::add(disk.clone())?;
    println!("serving {}", frontend.path().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(frontend);
    println!("{:?}, {} pages left", disk.stats(), disk.store().len());
    Ok(())
}
