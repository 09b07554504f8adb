//! A disk whose every request passes through a test: a FUSE file system with one file, served with direct I/O.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]
#![allow(dead_code, reason = "each test file is a crate of its own and uses a part of this")]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// What reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read { offset: u64, length: u32 },
    Write { offset: u64, length: u32 },
    Flush,
}

/// How the disk answers a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Serve,
    Fail(i32),
    /// Only this many bytes.
    Short(u32),
    /// Serve, but not before this time; all later calls wait, too.
    NotBefore(Instant),
}

type Behaviour = Box<dyn Fn(usize, Call) -> Answer + Send + Sync>;

struct State {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<Vec<Call>>,
    behaviour: Behaviour,
}

struct Server(Arc<State>);

/// A mounted disk; unmounted when dropped.
pub(crate) struct FuseDisk {
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
    state: Arc<State>,
    session: Option<BackgroundSession>,
    _directory: tempfile::TempDir,
}

impl FuseDisk {
    /// Mounts a disk; none, with the reason printed, where this process may not mount.
    pub(crate) fn mount(
        size_bytes: u64,
        behaviour: impl Fn(usize, Call) -> Answer + Send + Sync + 'static,
    ) -> Option<Self> {
        if !std::path::Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            println!("skipped: FUSE needs /dev/fuse and root");
            return None;
        }
        let bytes = Mutex::new(vec![1; usize::try_from(size_bytes).unwrap()]);
        let state = Arc::new(State { bytes, calls: Mutex::new(Vec::new()), behaviour: Box::new(behaviour) });
        let directory = tempfile::tempdir().unwrap();
        let session = match fuser::spawn_mount(Server(Arc::clone(&state)), directory.path(), &Config::default()) {
            Ok(session) => session,
            Err(error) => {
                println!("skipped: FUSE cannot be mounted: {error}");
                return None;
            }
        };
        let path = directory.path().join("disk");
        Some(Self { path, size_bytes, state, session: Some(session), _directory: directory })
    }

    pub(crate) fn spec(&self, id: &str) -> load_engine::DiskSpec {
        super::disk(id, &self.path, self.size_bytes)
    }

    /// What reached the disk since the last call of this.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.calls.lock().unwrap())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state.bytes.lock().unwrap().clone()
    }
}

impl Drop for FuseDisk {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.umount_and_join().is_err() {
            // A ring that was left to the kernel keeps the file open.
            let mount = self.path.parent().unwrap().to_str().unwrap();
            let _ = super::loop_device::command("umount", &["--lazy", mount]);
        }
    }
}

const TTL: Duration = Duration::from_secs(60);

impl Server {
    fn answer(&self, call: Call) -> Answer {
        let number = {
            let mut calls = self.0.calls.lock().unwrap();
            calls.push(call);
            calls.len() - 1
        };
        let answer = (self.0.behaviour)(number, call);
        if let Answer::NotBefore(time) = answer {
            std::thread::sleep(time.saturating_duration_since(Instant::now()));
        }
        answer
    }

    fn attributes(&self, inode: u64) -> FileAttr {
        let size = self.0.bytes.lock().unwrap().len() as u64;
        let file = inode == 2;
        FileAttr {
            ino: INodeNo(inode),
            size: if file { size } else { 0 },
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&TTL, &self.attributes(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(u64::from(inode)));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(1), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = match self.answer(Call::Read { offset, length }) {
            Answer::Fail(number) => return reply.error(Errno::from_i32(number)),
            Answer::Short(length) => length,
            Answer::Serve | Answer::NotBefore(_) => length,
        };
        let start = usize::try_from(offset).unwrap();
        reply.data(&self.0.bytes.lock().unwrap()[start..start + length as usize]);
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
        let length = u32::try_from(data.len()).unwrap();
        let length = match self.answer(Call::Write { offset, length }) {
            Answer::Fail(number) => return reply.error(Errno::from_i32(number)),
            Answer::Short(length) => length,
            Answer::Serve | Answer::NotBefore(_) => length,
        };
        let start = usize::try_from(offset).unwrap();
        self.0.bytes.lock().unwrap()[start..start + length as usize].copy_from_slice(&data[..length as usize]);
        reply.written(length);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.answer(Call::Flush) {
            Answer::Fail(number) => reply.error(Errno::from_i32(number)),
            Answer::Serve | Answer::Short(_) | Answer::NotBefore(_) => reply.ok(),
        }
    }
}
