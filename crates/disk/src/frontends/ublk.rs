//! The ublk frontend: the device as a block device of this machine, `/dev/ublkbN`.
//!
//! The kernel's `ublk_drv` (Linux 6.0 and later) hands requests over through a ring in memory
//! (io_uring), with a thread for each queue; data is copied once between the request and the
//! queue's buffers. Nothing below the block layer can reach a device quicker from outside the
//! kernel.
//!
//! The driver can keep a device alive whose server died, for another server to take over. That is
//! left out: what this device held died with its server.
//!
//! Swapping to the device is not safe: the server's own memory would have to be locked.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use libublk::ctrl::{UblkCtrl, UblkCtrlBuilder};
use libublk::io::{BufDescList, UblkDev, UblkQueue};
use libublk::{BufDesc, UblkFlags, UblkIORes, sys};
use rustix::fs::Access;
use rustix::io::Errno;
use thiserror::Error;

use crate::disk::{Disk, Holes};
use crate::error::IoError;

const CONTROL: &str = "/dev/ublk-control";
/// A queue for each CPU, up to this many, each with a thread.
const QUEUES_MAX: u16 = 64;
/// Requests of a queue; each may use [`REQUEST_MAX`] bytes for as long as the device lives.
const DEPTH: u16 = 64;
/// Bytes of the largest request, for which each slot of each queue keeps a buffer.
const REQUEST_MAX: u32 = 256 << 10;
/// Bytes of the largest range to discard or zero.
const RANGE_MAX: u32 = 1 << 30;
/// Bytes of the sectors that requests count in.
const SECTOR: u32 = 512;
/// The operation within the word that holds its flags too.
const OPERATION: u32 = 0xFF;

/// Why there is no device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The kernel has no driver, or it is not loaded.
    #[error("this kernel has no ublk driver (modprobe ublk_drv; Linux 6.0 and later)")]
    NoDriver,
    /// The driver may not be opened.
    #[error("no permission to open {CONTROL} (run as root)")]
    Denied,
    /// The driver refused.
    #[error("the ublk driver refused the device: {0:?}")]
    Driver(#[source] libublk::UblkError),
    /// The system has no thread left.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
}

/// A block device of this machine. Dropping it removes the device: programs that have it open see
/// errors from then on. Before Linux 6.9, dropping waits for that to be closed too.
///
/// The size is the one the device had when it was added.
///
/// # Examples
/// ```no_run
/// use std::sync::Arc;
/// use zfold_disk::Disk;
/// use zfold_disk::ublk::UblkFrontend;
///
/// # fn serve(disk: Arc<Disk>) -> Result<(), Box<dyn std::error::Error>> {
/// let frontend = UblkFrontend::add(disk)?;
/// println!("mkfs.ext4 {}", frontend.path().display());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UblkFrontend {
    id: u16,
    path: PathBuf,
    server: Option<JoinHandle<()>>,
}

/// The single message of the server's thread: the number and path of a device that is ready, or why
/// there is none.
type Ready = Result<(u16, PathBuf), libublk::UblkError>;

impl UblkFrontend {
    /// Adds a block device over `disk`, with the first number that is free, and serves it.
    ///
    /// # Errors
    /// [`UblkError`]; there is no device then.
    pub fn add(disk: Arc<Disk>) -> Result<Self, UblkError> {
        match rustix::fs::access(CONTROL, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::PERM) => return Err(UblkError::Denied),
            Err(_) => return Err(UblkError::NoDriver),
        }
        let (ready, is_ready): (_, Receiver<Ready>) = sync_channel(1);
        // The library ties a device to the thread that made it.
        let server = thread::Builder::new()
            .name("zfold-ublk".into())
            .spawn(move || serve(&disk, ready))
            .map_err(UblkError::Start)?;
        // A thread that panicked says nothing.
        let gone = || Err(libublk::UblkError::QueueIsDown);
        match is_ready.recv().unwrap_or_else(|_| gone()) {
            Ok((id, path)) => Ok(Self { id, path, server: Some(server) }),
            Err(error) => {
                let _ = server.join();
                Err(UblkError::Driver(error))
            }
        }
    }

    /// Returns the path of the block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UblkFrontend {
    fn drop(&mut self) {
        // Another process may have removed the device, and then its threads have ended by
        // themselves.
        if let Ok(control) = UblkCtrl::new_simple(self.id.into()) {
            let _ = control.kill_dev();
        }
        if let Some(server) = self.server.take() {
            // A panic of the thread has been reported by it.
            let _ = server.join();
        }
    }
}

/// Makes the device and stays until it is gone.
fn serve(disk: &Arc<Disk>, ready: SyncSender<Ready>) {
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let _user = disk.attach("it is a block device of this system");
    let control = UblkCtrlBuilder::default()
        .name("zfold")
        .id(-1)
        .nr_queues(cpus.min(QUEUES_MAX.into()) as u16)
        .depth(DEPTH)
        .io_buf_bytes(REQUEST_MAX)
        .dev_flags(UblkFlags::UBLK_DEV_F_ADD_DEV)
        .build();
    let ran = control.and_then(|control| {
        let target = |device: &mut UblkDev| {
            describe(disk, device);
            Ok(())
        };
        let queue_disk = disk.clone();
        let queue = move |queue, device: &UblkDev| serve_queue(&queue_disk, queue, device);
        let ready = ready.clone();
        let started = move |control: &UblkCtrl| {
            let id = control.dev_info().dev_id as u16;
            // If the caller is gone, no thread waits, and none will end this one either.
            if ready.send(Ok((id, control.get_bdev_path().into()))).is_err() {
                let _ = control.kill_dev();
            }
        };
        let ran = control.run_target(target, queue, started);
        // Does not wait for a file system that is still mounted, where the kernel can do that
        // (Linux 6.9 and later); otherwise dropping `control` does the work and waits.
        let _ = control.del_dev_async();
        ran
    });
    if let Err(error) = ran {
        // After a start it is of no interest to anybody.
        let _ = ready.try_send(Err(error));
    }
}

/// Fills in the parameters of the device for the kernel.
fn describe(disk: &Disk, device: &mut UblkDev) {
    device.set_default_params(disk.size());
    let (sector, page) = (disk.sector().bytes(), disk.page_len() as u32);
    let parameters = &mut device.tgt.params;
    parameters.types |= sys::UBLK_PARAM_TYPE_DISCARD;
    let basic = &mut parameters.basic;
    if disk.read_only() {
        basic.attrs |= sys::UBLK_ATTR_READ_ONLY;
    }
    basic.logical_bs_shift = sector.ilog2() as u8;
    basic.physical_bs_shift = page.max(sector).ilog2() as u8;
    basic.io_min_shift = basic.physical_bs_shift;
    basic.io_opt_shift = basic.physical_bs_shift;
    parameters.discard = sys::ublk_param_discard {
        discard_granularity: page,
        max_discard_sectors: RANGE_MAX / SECTOR,
        max_write_zeroes_sectors: RANGE_MAX / SECTOR,
        max_discard_segments: 1,
        ..Default::default()
    };
}

/// Serves one queue until the device is removed.
fn serve_queue(disk: &Disk, id: u16, device: &UblkDev) {
    // The kernel knows their addresses for as long as there is the queue, which goes first.
    let mut buffers = device.alloc_queue_io_bufs();
    let queue = UblkQueue::new(id, device)
        .and_then(|queue| queue.submit_fetch_commands_unified(BufDescList::Slices(Some(&buffers))));
    let Ok(queue) = queue else {
        // Or the start of the device would wait for this queue for ever.
        return device.notify_buffer_registration_complete(true);
    };
    queue.wait_and_handle_io(|queue, tag, _| {
        let Some(buffer) = buffers.get_mut(usize::from(tag)) else { return };
        let request = UblkRequest::new(queue.get_iod(tag));
        let result = match request.serve(disk, buffer.as_mut_slice()) {
            Ok(done) => done as i32,
            Err(error) => -error,
        };
        let done = Ok(UblkIORes::Result(result));
        // Fails only for buffers of another kind than the device was made with.
        let _ = queue.complete_io_cmd_unified(tag, BufDesc::Slice(buffer.as_slice()), done);
    });
}

/// A request, out of the memory that the kernel writes it to.
#[derive(Clone, Copy, Debug)]
struct UblkRequest {
    operation: u32,
    may_unmap: bool,
    offset: u64,
    len: u64,
}

impl UblkRequest {
    fn new(descriptor: &sys::ublksrv_io_desc) -> Self {
        Self {
            operation: descriptor.op_flags & OPERATION,
            may_unmap: descriptor.op_flags & sys::UBLK_IO_F_NOUNMAP == 0,
            offset: descriptor.start_sector.saturating_mul(SECTOR.into()),
            len: u64::from(descriptor.nr_sectors) * u64::from(SECTOR),
        }
    }

    /// Serves the request, with the data of a read or a write in `buffer`, and returns the bytes
    /// done, or an error number.
    fn serve(self, disk: &Disk, buffer: &mut [u8]) -> Result<u32, i32> {
        let Self { operation, may_unmap, offset, len } = self;
        let data = buffer.get_mut(..len as usize);
        let too_long = Errno::INVAL.raw_os_error();
        let done = match operation {
            sys::UBLK_IO_OP_READ => disk.read(offset, data.ok_or(too_long)?),
            sys::UBLK_IO_OP_WRITE => disk.write(offset, data.ok_or(too_long)?),
            sys::UBLK_IO_OP_FLUSH => disk.flush(),
            sys::UBLK_IO_OP_DISCARD => disk.discard(offset, len),
            sys::UBLK_IO_OP_WRITE_ZEROES if may_unmap => {
                disk.write_zeroes(offset, len, Holes::Allow)
            }
            sys::UBLK_IO_OP_WRITE_ZEROES => disk.write_zeroes(offset, len, Holes::Forbid),
            _ => return Err(Errno::OPNOTSUPP.raw_os_error()),
        };
        // Lengths of reads and writes are those of a buffer; the others are not looked at.
        done.map(|()| len.min(REQUEST_MAX.into()) as u32).map_err(IoError::errno)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{DiskOptions, SectorSize};
    use zfold_pool::PoolOptions;
    use zfold_store::{CodecKind, Store, StoreOptions};

    fn disk(read_only: bool) -> Arc<Disk> {
        let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
        let store = Store::new(pool, &StoreOptions::new(64, CodecKind::Lz4.into())).unwrap();
        let options =
            DiskOptions::new(64 * 4096).with_sector(SectorSize::B512).with_read_only(read_only);
        Arc::new(Disk::new(Arc::new(store), &options).unwrap())
    }

    /// Serves a request for `sectors` from `sector`.
    fn serve(
        disk: &Disk,
        op_flags: u32,
        sector: u64,
        sectors: u32,
        buffer: &mut [u8],
    ) -> Result<u32, i32> {
        let mut descriptor = sys::ublksrv_io_desc { op_flags, ..Default::default() };
        descriptor.start_sector = sector;
        descriptor.nr_sectors = sectors;
        UblkRequest::new(&descriptor).serve(disk, buffer)
    }

    #[test]
    fn requests_reach_the_disk() {
        let disk = disk(false);
        let mut data: Vec<u8> = (0..8 * 4096).map(|n| (n / 7 % 251) as u8).collect();
        let written = data.clone();
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_WRITE, 16, 64, &mut data), Ok(32768));
        data.fill(0);
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_READ, 16, 64, &mut data), Ok(32768));
        assert!(data == written);
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_FLUSH, 0, 0, &mut []), Ok(0));
        assert_eq!(disk.stats().flushes_total, 1);
        serve(&disk, sys::UBLK_IO_OP_DISCARD, 16, 16, &mut []).unwrap();
        assert_eq!(disk.store().len(), 6);
        serve(&disk, sys::UBLK_IO_OP_WRITE_ZEROES, 32, 8, &mut []).unwrap();
        assert_eq!(disk.store().len(), 5, "may be unmapped");
        let keep = sys::UBLK_IO_OP_WRITE_ZEROES | sys::UBLK_IO_F_NOUNMAP;
        serve(&disk, keep, 40, 8, &mut []).unwrap();
        assert_eq!(disk.store().len(), 5, "may not be unmapped");
        let flags = 1 << 20 | sys::UBLK_IO_OP_READ;
        assert_eq!(serve(&disk, flags, 40, 8, &mut data), Ok(4096), "flags are no operation");
        assert!(data[..4096] == [0; 4096]);
    }

    #[test]
    fn requests_that_cannot_be_served_say_why() {
        let disk = disk(true);
        let mut data = [0; 4096];
        let (end, inval, perm) = (64 * 8, 22, 1);
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_READ, end, 1, &mut data), Err(inval));
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_READ, u64::MAX, 1, &mut data), Err(inval));
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_READ, 0, 9, &mut data), Err(inval));
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_WRITE, 0, 8, &mut data), Err(perm));
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_DISCARD, 0, 8, &mut data), Err(perm));
        assert_eq!(serve(&disk, sys::UBLK_IO_OP_ZONE_OPEN, 0, 8, &mut data), Err(95));
    }

    /// Requests that no driver sends: each request is done as far as it says, or refused, and
    /// changes nothing else.
    #[test]
    fn requests_at_the_edges_stay_on_the_device_and_in_their_buffer() {
        const SECTORS: u64 = 64 * 8;
        let disk = disk(false);
        let contents: Vec<u8> = (0..64 * 4096).map(|n| (n / 7 % 251) as u8).collect();
        let edges = [0, 1, SECTORS - 1, SECTORS, SECTORS + 1, 1 << 54, 1 << 55, u64::MAX / 512];
        let edges = edges.into_iter().chain([u64::MAX / 512 + 1, 1 << 63, u64::MAX - 1, u64::MAX]);
        disk.write(0, &contents).unwrap();
        let all = || {
            let mut all = vec![0; contents.len()];
            disk.read(0, &mut all).unwrap();
            all
        };
        let flags = [0, 1 << 8, sys::UBLK_IO_F_NOUNMAP, 0xFFFF_FF00];
        for sector in edges {
            for sectors in [0, 1, 8, 512, SECTORS as u32 + 1, 1 << 23, 1 << 31, u32::MAX] {
                for operation in (0..=255).flat_map(|operation| flags.map(|more| operation | more))
                {
                    let of = operation & OPERATION;
                    if of > 40 && sectors != 1 {
                        continue;
                    }
                    let mut buffer = [0xEE; 4096];
                    let done = serve(&disk, operation, sector, sectors, &mut buffer);
                    let is_inside =
                        sector.checked_add(sectors.into()).is_some_and(|end| end <= SECTORS);
                    let len = u64::from(sectors) * 512;
                    let fits = is_inside && len <= buffer.len() as u64;
                    let (name, range) = (format!("{operation:#x} {sector} {sectors}"), || {
                        sector as usize * 512..(sector * 512 + len) as usize
                    });
                    let mut model = contents.clone();
                    match of {
                        sys::UBLK_IO_OP_READ if fits => {
                            assert!(buffer[..len as usize] == contents[range()], "{name}");
                        }
                        sys::UBLK_IO_OP_WRITE if fits => model[range()].fill(0xEE),
                        sys::UBLK_IO_OP_FLUSH => assert!(done.is_ok(), "{name}"),
                        sys::UBLK_IO_OP_DISCARD | sys::UBLK_IO_OP_WRITE_ZEROES if is_inside => {
                            assert!(done.is_ok(), "{name}");
                            model[range()].fill(0);
                        }
                        _ => assert!(done.is_err(), "{name}"),
                    }
                    assert!(done.is_ok_and(|done| done <= REQUEST_MAX) || done.is_err(), "{name}");
                    if done.is_ok() {
                        assert!(all() == model, "{name}");
                        disk.write(0, &contents).unwrap();
                    }
                }
                assert!(all() == contents, "{sector} {sectors}: what is refused changes nothing");
            }
        }
        disk.store().check();
    }

    #[test]
    fn a_missing_driver_is_reported() {
        zfold_testing::needs!(!Path::new(CONTROL).exists(), "there is a driver");
        let error = UblkFrontend::add(disk(false)).unwrap_err();
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
    }
}
