//! The file's operations, as the kernel requests them.
//!
//! | operation | answer |
//! |---|---|
//! | open, read, write, fsync | the device |
//! | fallocate punch-hole, zero-range | discard; what they cover frees its memory |
//! | fallocate otherwise | `EOPNOTSUPP`: memory cannot be set aside for later writes |
//! | lseek data, hole | block status; zeros that are allocated count as a hole |
//! | open with `O_TRUNC` | discard of all; the length stays |
//! | truncate | nothing at the present length, else `EINVAL`, as of a block device |
//! | a shared mapping | from Linux 6.6 on; the kernel caches its pages |
//! | chmod, chown | `EPERM`; the file below has the mode and the owner |
//! | times | taken and forgotten |

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::disk::{Disk, ExtentKind};
use crate::error::IoError;

/// Bytes of the largest request. The kernel's own limit is 256 pages unless its administrator
/// raised it.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests the kernel may have on their way at once; those of a loop device are all of this kind.
const BACKGROUND_MAX: u16 = 128;
/// The kernel keeps no attributes.
const TTL: Duration = Duration::ZERO;
/// Size of the block that `statfs` and `st_blksize` speak of.
const BLOCK: u32 = 4096;

/// The words of `lseek` for files with holes.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// The result of a read, before it is sent.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The root, and only, inode of the file system.
#[derive(Debug)]
pub(super) struct DeviceFile {
    disk: Arc<Disk>,
    mode: u16,
    uid: u32,
    gid: u32,
    mounted_at: SystemTime,
}

impl DeviceFile {
    /// Returns the file that covers `below`.
    #[expect(clippy::disallowed_methods, reason = "the time is shown, nothing depends on it")]
    pub(super) fn new(disk: Arc<Disk>, below: &Metadata) -> Self {
        let kept = if disk.read_only() { 0o444 } else { 0o666 };
        let mode = (below.mode() & kept) as u16;
        let (uid, gid) = (below.uid(), below.gid());
        Self { disk, mode, uid, gid, mounted_at: SystemTime::now() }
    }

    fn attr(&self) -> FileAttr {
        let held = self.disk.store().len() * self.disk.page_len() as u64;
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.disk.size(),
            blocks: held / 512,
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind: FileType::RegularFile,
            perm: self.mode,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }

    /// Returns how many of `len` bytes from `offset` lie before the end.
    fn cut(&self, offset: u64, len: u64) -> u64 {
        self.disk.size().saturating_sub(offset).min(len)
    }

    fn write_cut(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let len = self.cut(offset, data.len() as u64) as usize;
        if len == 0 && !data.is_empty() {
            return Err(Errno::ENOSPC);
        }
        self.disk.write(offset, &data[..len]).map_err(errno)?;
        Ok(len as u32)
    }

    fn allocate(&self, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits(mode as u32).ok_or(Errno::EOPNOTSUPP)?;
        let (keep, zero) = (FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE);
        let inside = self.cut(offset, len);
        if flags == FallocateFlags::PUNCH_HOLE | keep || flags == zero | keep {
            // Allocated zeros would promise that a later write finds memory, which nothing can.
            return self.disk.discard(offset.min(self.disk.size()), inside).map_err(errno);
        }
        if flags != zero {
            return Err(Errno::EOPNOTSUPP);
        }
        if inside < len {
            return Err(Errno::ENOSPC);
        }
        self.disk.discard(offset, len).map_err(errno)
    }

    /// Sets the length: to what it is, or to nothing as a program that opens the file to write it
    /// anew. Such a program takes what it skips for zeros, so the device is emptied.
    fn truncate(&self, to: u64, by: Option<FileHandle>) -> Result<(), Errno> {
        match self.disk.size() {
            size if size == to => Ok(()),
            // What the kernel makes of `O_TRUNC` names no open file, unlike `ftruncate`.
            size if to == 0 && by.is_none() => self.disk.discard(0, size).map_err(errno),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the first offset from `offset` whose byte is data, or is not.
    fn seek(&self, offset: i64, whence: i32) -> Result<u64, Errno> {
        let size = self.disk.size();
        let data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::EINVAL),
        };
        let mut at = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        if at >= size {
            return Err(Errno::ENXIO);
        }
        while at < size {
            let extent = self.disk.extents(at, size - at, 1).map_err(errno)?[0];
            if (extent.kind == ExtentKind::Data) == data {
                return Ok(at);
            }
            at += extent.len;
        }
        // There is a hole behind the last byte of every file.
        if data { Err(Errno::ENXIO) } else { Ok(size) }
    }
}

fn errno(error: IoError) -> Errno {
    Errno::from_i32(error.errno())
}

fn reply_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for DeviceFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that grants less keeps its own limits, and all works more slowly.
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        // Without it the kernel waits for each direct request before it sends the next.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        // Without it a file that bypasses the page cache has no shared mapping.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOTDIR);
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr());
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        match size.map_or(Ok(()), |size| self.truncate(size, handle)) {
            Ok(()) => reply.attr(&TTL, &self.attr()),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.disk.read_only() && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.cut(offset, size.min(REQUEST_MAX).into()) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let data = &mut buffer[..len];
            match self.disk.read(offset.min(self.disk.size()), data) {
                Ok(()) => reply.data(data),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_cut(offset, data) {
            Ok(len) => reply.written(len),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.disk.flush().map_err(errno));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.allocate(offset, length, mode));
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(offset, whence) {
            Ok(at) => reply.offset(at as i64),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let page = self.disk.page_len() as u64;
        let blocks = self.disk.size().div_ceil(BLOCK.into());
        let held = self.disk.store().len() * page / u64::from(BLOCK);
        let free = blocks.saturating_sub(held);
        reply.statfs(blocks, free, free, 1, 0, BLOCK, 255, BLOCK);
    }
}
