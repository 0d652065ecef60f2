//! A file system whose files fail when a test says so: one folder, in the memory of the test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

use crate::common::skip;

/// What a file system says when it does not want.
pub(crate) const FAULTS: [rustix::io::Errno; 3] =
    [rustix::io::Errno::IO, rustix::io::Errno::DQUOT, rustix::io::Errno::NOSPC];

const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;
/// Nothing is kept by the kernel: a fault shows at once.
const TTL: Duration = Duration::ZERO;

/// Which calls fail, and how: error numbers, 0 for none.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) read: AtomicI32,
    pub(crate) write: AtomicI32,
    pub(crate) sync: AtomicI32,
    pub(crate) rename: AtomicI32,
}

impl Faults {
    pub(crate) fn end(&self) {
        for fault in [&self.read, &self.write, &self.sync, &self.rename] {
            fault.store(0, Ordering::SeqCst);
        }
    }
}

fn fails(fault: &AtomicI32) -> Result<(), Errno> {
    match fault.load(Ordering::SeqCst) {
        0 => Ok(()),
        errno => Err(Errno::from_i32(errno)),
    }
}

#[derive(Debug, Default)]
struct Folder {
    /// Inode numbers begin at 2 and are never used again.
    names: BTreeMap<OsString, u64>,
    files: BTreeMap<u64, (u32, Vec<u8>)>,
    last: u64,
}

#[derive(Debug)]
struct FaultyFs {
    faults: Arc<Faults>,
    folder: Mutex<Folder>,
}

/// A mounted file system; it goes with this.
pub(crate) struct Mounted {
    pub(crate) faults: Arc<Faults>,
    _session: BackgroundSession,
    folder: TempDir,
}

impl Mounted {
    /// Mounts an empty one, or says why the test does not run.
    pub(crate) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let faults = Arc::new(Faults::default());
        let fs = FaultyFs { faults: Arc::clone(&faults), folder: Mutex::default() };
        match fuser::spawn_mount(fs, folder.path(), &Config::default()) {
            Ok(session) => Some(Self { faults, _session: session, folder }),
            Err(error) => {
                skip(format!("no FUSE: {error}"));
                None
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }
}

impl FaultyFs {
    fn attr(folder: &Folder, ino: u64) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match folder.files.get(&ino) {
            _ if ino == 1 => (FileType::Directory, 0o700, 0),
            Some((mode, bytes)) => (FileType::RegularFile, *mode as u16, bytes.len() as u64),
            None => return Err(Errno::ENOENT),
        };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (blocks, nlink, rdev, blksize, flags) = (size.div_ceil(512), 1, 0, 4096, 0);
        let [atime, mtime, ctime, crtime] = [EPOCH; 4];
        let ino = INodeNo(ino);
        Ok(FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Folder) -> T) -> T {
        work(&mut self.folder.lock().expect("no panic"))
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for FaultyFs {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.with(|folder| match folder.names.get(name) {
            Some(&ino) => Self::attr(folder, ino),
            None => Err(Errno::ENOENT),
        });
        match found {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.with(|folder| Self::attr(folder, ino.0)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.with(|folder| {
            if let Some((kept, bytes)) = folder.files.get_mut(&ino.0) {
                *kept = mode.map_or(*kept, |mode| mode & 0o777);
                if let Some(size) = size {
                    bytes.resize(size as usize, 0);
                }
            }
            Self::attr(folder, ino.0)
        });
        match done {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let made = self.with(|folder| {
            folder.last = folder.last.max(1) + 1;
            let ino = folder.last;
            folder.names.insert(name.to_owned(), ino);
            folder.files.insert(ino, (mode & !umask & 0o777, Vec::new()));
            Self::attr(folder, ino)
        });
        match made {
            Ok(attr) => {
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: fuser::ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Err(error) = fails(&self.faults.read) {
            return reply.error(error);
        }
        self.with(|folder| {
            let bytes = &folder.files[&ino.0].1;
            let from = bytes.len().min(offset as usize);
            reply.data(&bytes[from..bytes.len().min(from + size as usize)]);
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Err(error) = fails(&self.faults.write) {
            return reply.error(error);
        }
        self.with(|folder| {
            let bytes = &mut folder.files.get_mut(&ino.0).expect("it was opened").1;
            let range = offset as usize..offset as usize + data.len();
            bytes.resize(bytes.len().max(range.end), 0);
            bytes[range].copy_from_slice(data);
        });
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, fails(&self.faults.sync));
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        // Its bytes stay: it may be open.
        let gone = self.with(|folder| folder.names.remove(name)).map(drop);
        empty(reply, gone.ok_or(Errno::ENOENT));
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = fails(&self.faults.rename).and_then(|()| {
            self.with(|folder| {
                let ino = folder.names.remove(name).ok_or(Errno::ENOENT)?;
                folder.names.insert(new.to_owned(), ino);
                Ok(())
            })
        });
        empty(reply, done);
    }
}
