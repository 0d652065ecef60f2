//! Pages that background threads bring in before a sequence of touches reaches them.
//!
//! The thread that touches a page brings the first pages of its window itself and posts the others
//! here. Any thread takes them, a piece at a time, in order: posting and taking are one exchange of
//! one word, so no piece of a post is taken twice. All of it is hints: a post may replace another,
//! and a page may be brought by another thread first (word/W1).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Posts at a time.
const POSTS: usize = 4;

/// Ranges of keys, each in one word: the first key, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    posts: [AtomicU64; POSTS],
    turn: AtomicUsize,
}

fn unpack(word: u64) -> Range<u32> {
    let (first, count) = ((word >> 32) as u32, word as u32);
    first..first + count
}

fn pack(keys: &Range<u32>) -> u64 {
    u64::from(keys.start) << 32 | u64::from(keys.end - keys.start)
}

impl Ahead {
    /// Posts keys, in place of the oldest post if there are many.
    pub(super) fn post(&self, keys: &Range<u32>) {
        let free = self.posts.iter().find(|post| post.load(Ordering::Relaxed) as u32 == 0);
        let post =
            free.unwrap_or_else(|| &self.posts[self.turn.fetch_add(1, Ordering::Relaxed) % POSTS]);
        // SeqCst: before the check for sleeping threads (room/L2), as in `is_empty`.
        post.store(pack(keys), Ordering::SeqCst);
    }

    /// Takes up to `most` keys that come first in a post that begins within `within`.
    pub(super) fn take(&self, within: &Range<u32>, most: u32) -> Option<Range<u32>> {
        self.posts.iter().find_map(|post| {
            let rest = |word| {
                let keys = unpack(word);
                let takes = !keys.is_empty() && within.contains(&keys.start);
                takes.then(|| pack(&(keys.end.min(keys.start + most)..keys.end)))
            };
            let taken = post.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
            taken.ok().map(|word| {
                let keys = unpack(word);
                keys.start..keys.end.min(keys.start + most)
            })
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posts.iter().all(|post| post.load(Ordering::SeqCst) as u32 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_taken_once_and_in_order() {
        let ahead = Ahead::default();
        assert!(ahead.is_empty() && ahead.take(&(0..u32::MAX), 8).is_none());
        ahead.post(&(10..30));
        ahead.post(&(100..101));
        assert_eq!(ahead.take(&(50..200), 8), Some(100..101));
        assert_eq!(ahead.take(&(50..200), 8), None);
        let mut taken = Vec::new();
        while let Some(keys) = ahead.take(&(0..200), 8) {
            taken.push(keys);
        }
        assert_eq!(taken, [10..18, 18..26, 26..30]);
        assert!(ahead.is_empty());
    }

    #[test]
    fn new_posts_replace_others() {
        let ahead = Ahead::default();
        (0..100).for_each(|at| ahead.post(&(at * 10..at * 10 + 5)));
        let taken = std::iter::from_fn(|| ahead.take(&(0..u32::MAX), 5));
        let mut taken: Vec<_> = taken.map(|keys| keys.start).collect();
        taken.sort_unstable();
        assert_eq!(taken, [960, 970, 980, 990]);
    }
}
