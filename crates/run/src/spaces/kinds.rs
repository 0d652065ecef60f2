//! Memory that cannot leave, by kind: what was seen of it, and what is reported to the user.

use crate::options::{Kind, Staying};

/// The share of the limit above which a kind is reported, and measured exactly.
pub(crate) const MUCH: u64 = 4;
/// Looks in a row that must find so much before it is reported: some of it stays only for a moment.
const LOOKS: u32 = 3;

/// Bytes of each [`Kind`].
pub(crate) type Bytes = [u64; Kind::ALL.len()];

/// The memory of a process.
#[derive(Debug)]
pub(crate) struct Seen {
    /// A process of the space, maybe the helper.
    pub pid: i32,
    /// The one to name.
    pub named: i32,
    pub bytes: Bytes,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    now: Bytes,
    peak: Bytes,
    /// What was last reported of each kind.
    told: Bytes,
    /// Looks in a row that found much of each kind.
    much: [u32; Kind::ALL.len()],
    untold: Vec<Staying>,
    /// What this process had besides pages of the program when it was looked at last.
    pub own_bytes: u64,
}

impl Kinds {
    /// Records what was seen in each process; returns whether there is anything to report.
    pub(crate) fn note(&mut self, all: &[Seen], limit: u64) -> bool {
        for kind in Kind::ALL {
            let of = kind as usize;
            let bytes = all.iter().map(|one| one.bytes[of]).sum();
            self.now[of] = bytes;
            self.peak[of] = self.peak[of].max(bytes);
            // The kernel takes pages of files back.
            let is_much = kind != Kind::File && bytes > limit / MUCH && bytes / 2 >= self.told[of];
            self.much[of] = if is_much { self.much[of] + 1 } else { 0 };
            if self.much[of] < LOOKS {
                continue;
            }
            let largest = all.iter().max_by_key(|one| one.bytes[of]);
            let Some(&Seen { named: pid, .. }) = largest else { continue };
            self.told[of] = bytes;
            self.much[of] = 0;
            self.untold.push(Staying { kind, bytes, pid, program: String::new() });
        }
        !self.untold.is_empty()
    }

    /// Returns how many bytes of each kind were seen last, and the most that was seen.
    pub(crate) fn bytes(&self) -> (Bytes, Bytes) {
        (self.now, self.peak)
    }

    /// Returns what is to be reported since the last call, without the names of programs.
    pub(crate) fn untold(&mut self) -> Vec<Staying> {
        std::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, kind: Kind, of: u64) -> Seen {
        Seen { pid, named: pid, bytes: bytes(kind, of) }
    }

    fn bytes(kind: Kind, of: u64) -> Bytes {
        let mut bytes = Bytes::default();
        bytes[kind as usize] = of;
        bytes
    }

    #[test]
    fn much_of_a_kind_is_told_once_and_again_when_it_doubles() {
        let mut kinds = Kinds::default();
        let mut told = |kind, each: u64| {
            let all = [process(1, kind, each), process(2, kind, each + 1)];
            for _ in 0..2 * LOOKS {
                kinds.note(&all, 100);
            }
            let untold = kinds.untold();
            untold.iter().map(|one| (one.kind, one.bytes, one.pid)).collect::<Vec<_>>()
        };
        assert_eq!(told(Kind::Shared, 12), [], "25 is a quarter of the limit");
        assert_eq!(told(Kind::Shared, 13), [(Kind::Shared, 27, 2)]);
        assert_eq!(told(Kind::Shared, 26), []);
        assert_eq!(told(Kind::Locked, 20), [(Kind::Locked, 41, 2)]);
        assert_eq!(told(Kind::Shared, 27), [(Kind::Shared, 55, 2)]);
        assert_eq!(told(Kind::File, 90), [], "the kernel takes these back");
        assert_eq!(kinds.bytes(), (bytes(Kind::File, 181), [41, 0, 0, 55, 181, 0]));
        // For a moment.
        kinds.note(&[process(1, Kind::Protected, 90)], 100);
        kinds.note(&[], 100);
        kinds.note(&[process(1, Kind::Protected, 90)], 100);
        assert!(kinds.untold.is_empty());
    }
}
