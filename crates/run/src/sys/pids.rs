//! Whether the control groups of this process allow many more processes (`pids.max`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zfold_store::pressure::cgroups;

/// Few are left if that is less than this share of the limit, and less than so many.
const SHARE: u64 = 4;
const MOST: u64 = 64;
/// For how long an answer is good: reading it takes about 15 microseconds for each limit.
const GOOD: Duration = Duration::from_millis(4);

/// What the limits say.
#[derive(Debug)]
pub(crate) struct Pids {
    groups: Vec<PathBuf>,
    looked: Option<Instant>,
    few: bool,
}

impl Pids {
    /// Finds the groups of this process, which its descendants begin in.
    pub(crate) fn new() -> Self {
        Self::of(cgroups("pids"))
    }

    fn of(mut groups: Vec<PathBuf>) -> Self {
        groups.retain(|group| group.join("pids.max").exists());
        Self { groups, looked: None, few: false }
    }

    /// Returns whether few more processes may be made, as far as was seen some milliseconds ago.
    pub(crate) fn are_few(&mut self) -> bool {
        if self.looked.is_none_or(|looked| looked.elapsed() > GOOD) {
            self.few = self.groups.iter().any(|group| is_nearly_full(group));
            self.looked = Some(Instant::now());
        }
        self.few
    }
}

fn is_nearly_full(group: &Path) -> bool {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a limit, it says so in a word.
    let left = number("pids.max")
        .and_then(|most| Some((most, most.saturating_sub(number("pids.current")?))));
    left.is_some_and(|(most, left)| left < MOST.min(most / SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_left_when_one_of_the_groups_is_nearly_full() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, outer) = (folder.path().join("inner"), folder.path().join("outer"));
        let write = |group: &Path, most: &str, current: &str| {
            fs::create_dir_all(group).expect("made");
            fs::write(group.join("pids.max"), most).expect("written");
            fs::write(group.join("pids.current"), current).expect("written");
        };
        let few = || Pids::of(vec![inner.clone(), outer.clone()]).are_few();
        assert!(!few(), "no limits");
        write(&inner, "max\n", "5000\n");
        write(&outer, "64\n", "48\n");
        assert!(!few());
        write(&outer, "64\n", "49\n");
        assert!(few());
        write(&outer, "8000\n", "7936\n");
        assert!(!few());
        write(&outer, "8000\n", "8001\n");
        assert!(few());
    }
}
