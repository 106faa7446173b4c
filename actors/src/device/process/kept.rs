//! Memory that outlives a device's process: its KV cache, and the ledger that says which blocks hold what. The parent makes both as
//! files without a name and only holds them; the child maps the one and writes the other. Of a process that something from outside
//! killed in mid-life they are sound, and the next one goes on with them. After any other end they are not trusted and given up.

use super::frame::GREETING;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::{BlockId, TokenId};
use ropeteam_engine::ledger::{BlockLedger, KnownBlock};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process that took memory over and was killed sooner leaves it to nobody: for want of memory, perhaps.
const LASTS_AFTER: Duration = Duration::from_secs(5);

/// What the last life of a device left for the next one. Whoever takes it is the only one to have it.
#[derive(Debug, Default)]
pub(crate) struct Legacy(Mutex<Option<Kept>>);

impl Legacy {
    /// What was left, or new and empty memory; `None` where the system has no such thing.
    pub(super) fn take(&self) -> Option<Kept> {
        let left = self.slot().take().map(|kept| Kept {
            since: Instant::now(),
            taken_over: true,
            ..kept
        });
        left.or_else(|| {
            let new = Kept::new();
            new.map_err(|error| tracing::debug!(%error, "no memory that outlives a process"))
                .ok()
        })
    }

    /// Gives the memory back to the system.
    pub fn clear(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the memory of a process that something from outside killed.
    pub(super) fn leave(&self, kept: Kept) {
        if !kept.taken_over || kept.since.elapsed() >= LASTS_AFTER {
            *self.slot() = Some(kept);
        }
    }
}

/// The two files of a life.
#[derive(Debug)]
pub(super) struct Kept {
    cache: OwnedFd,
    ledger: OwnedFd,
    since: Instant,
    taken_over: bool,
}

impl Kept {
    #[cfg(target_os = "linux")]
    fn new() -> io::Result<Self> {
        use rustix::fs::{MemfdFlags, memfd_create};
        // Some systems insist that it cannot be run, others do not know how to say so.
        let plain = MemfdFlags::CLOEXEC;
        let make = |name: &str| {
            memfd_create(name, plain | MemfdFlags::NOEXEC_SEAL)
                .or_else(|_| memfd_create(name, plain))
        };
        Ok(Kept {
            cache: make("ropeteam-kv")?,
            ledger: make("ropeteam-ledger")?,
            since: Instant::now(),
            taken_over: false,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Greets the child, and hands it the files. The socket is new, so that it takes as little as that at once.
pub(super) fn greet(socket: &UnixStream, kept: Option<&Kept>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = kept.map(|kept| [kept.cache.as_fd(), kept.ledger.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let sent = sendmsg(
        socket,
        &[IoSlice::new(GREETING)],
        &mut control,
        SendFlags::empty(),
    )?;
    match sent == GREETING.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The parent's greeting and the files that came with it, cache and ledger.
pub(super) fn greeted(mut socket: &UnixStream) -> io::Result<([u8; 8], Option<[File; 2]>)> {
    let mut greeting = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut greeting)];
    let got = recvmsg(socket, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came.map(File::from));
        }
    }
    socket.read_exact(&mut greeting[got..])?;
    Ok((greeting, files.try_into().ok()))
}

/// Bytes before the tokens of an entry: its mark, parent, salt and hash.
const HEAD: usize = 24;
/// In the head of an entry: the parent's number when there is none.
const NO_PARENT: u32 = u32::MAX;
/// Begins an entry.
const ENTERED: u32 = 0x6b65_7074;

/// The ledger as a file: one entry of fixed length per block.
#[derive(Debug)]
pub(super) struct LedgerFile {
    file: File,
    entry: Vec<u8>,
}

impl LedgerFile {
    /// Reads what is written there; all of it is to be checked by whoever takes it over.
    pub fn open(file: File, capacity: &Capacity) -> io::Result<(Vec<KnownBlock>, Self)> {
        let entry_len = HEAD + 4 * capacity.block_size as usize;
        let len = u64::from(capacity.blocks) * entry_len as u64;
        if file.metadata()?.len() != len {
            file.set_len(0)?;
            file.set_len(len)?;
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let entries = (0..capacity.blocks).zip(bytes.chunks_exact(entry_len));
        let known = entries.filter_map(|(block, entry)| read_entry(BlockId(block), entry));
        let known = known.collect();
        let entry = vec![0; entry_len];
        Ok((known, LedgerFile { file, entry }))
    }

    fn write(&self, block: BlockId, bytes: &[u8]) {
        let at = u64::from(block.0) * self.entry.len() as u64;
        // A ledger that is wrong is worse than a life that ends: then nobody trusts it any more.
        self.file
            .write_all_at(bytes, at)
            .expect("memory can be written to");
    }
}

impl BlockLedger for LedgerFile {
    fn enter(&mut self, known: &KnownBlock) {
        let parent = known.parent.map_or(NO_PARENT, |parent| parent.0);
        let mut entry = std::mem::take(&mut self.entry);
        entry[..4].copy_from_slice(&ENTERED.to_le_bytes());
        entry[4..8].copy_from_slice(&parent.to_le_bytes());
        entry[8..16].copy_from_slice(&known.salt.to_le_bytes());
        entry[16..24].copy_from_slice(&known.hash.to_le_bytes());
        for (place, token) in entry[HEAD..].chunks_exact_mut(4).zip(&known.tokens) {
            place.copy_from_slice(&token.0.to_le_bytes());
        }
        self.entry = entry;
        self.write(known.block, &self.entry);
    }

    fn strike(&mut self, block: BlockId) {
        self.write(block, &[0; 4]);
    }
}

fn read_entry(block: BlockId, entry: &[u8]) -> Option<KnownBlock> {
    let words: Vec<u32> = entry
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let [
        ENTERED,
        parent,
        salt,
        salt_high,
        hash,
        hash_high,
        ref tokens @ ..,
    ] = words[..]
    else {
        return None;
    };
    let long = |low, high| u64::from(low) | u64::from(high) << 32;
    Some(KnownBlock {
        block,
        parent: (parent != NO_PARENT).then_some(BlockId(parent)),
        salt: long(salt, salt_high),
        tokens: tokens.iter().copied().map(TokenId).collect(),
        hash: long(hash, hash_high),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn capacity() -> Capacity {
        Capacity {
            blocks: 8,
            block_size: 2,
            max_model_len: 16,
            max_step_tokens: 16,
            max_logits_rows: 4,
            vocab: 10,
        }
    }

    fn known(block: u32, parent: Option<u32>) -> KnownBlock {
        KnownBlock {
            block: BlockId(block),
            parent: parent.map(BlockId),
            salt: 5 << 40,
            tokens: vec![TokenId(block), TokenId(9)],
            hash: u64::MAX - 3,
        }
    }

    #[test]
    fn files_pass_with_the_greeting_and_hold_what_was_entered() {
        let kept = Kept::new().expect("memory");
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        greet(&ours, Some(&kept)).expect("room");
        let (greeting, files) = greeted(&theirs).expect("a greeting");
        assert_eq!(&greeting, GREETING);
        let [_, file] = files.expect("two files");
        let (before, mut ledger) = LedgerFile::open(file, &capacity()).expect("a file");
        assert_eq!(before, []);
        ledger.enter(&known(3, None));
        ledger.enter(&known(1, Some(3)));
        ledger.enter(&known(7, Some(1)));
        ledger.strike(BlockId(7));
        drop(ledger);
        let again = || File::from(kept.ledger.try_clone().expect("a descriptor"));
        let (after, _) = LedgerFile::open(again(), &capacity()).expect("a file");
        assert_eq!(after, [known(1, Some(3)), known(3, None)]);
        // Of another size, it is another device's.
        let other = Capacity {
            blocks: 9,
            ..capacity()
        };
        assert_eq!(LedgerFile::open(again(), &other).expect("a file").0, []);
    }

    #[test]
    fn a_parent_without_such_memory_only_greets() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        greet(&ours, None).expect("room");
        let (greeting, files) = greeted(&theirs).expect("a greeting");
        assert_eq!((&greeting, files.is_none()), (GREETING, true));
    }

    #[test]
    fn memory_that_was_taken_over_and_killed_at_once_is_not_left_again() {
        let legacy = Legacy::default();
        let first = legacy.take().expect("memory");
        assert!(!first.taken_over);
        legacy.leave(first);
        let second = legacy.take().expect("memory");
        assert!(second.taken_over);
        legacy.leave(second);
        assert!(!legacy.take().expect("memory").taken_over);
    }
}
