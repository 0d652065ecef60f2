//! Pages that background threads bring in before a sequence of touches reaches them.
//!
//! The thread that touches a page brings the first pages of its window itself and posts the others
//! here. Any thread takes them, a piece at a time, in order: posting and taking are one exchange of
//! one word, so no piece of a post is taken twice. All of it is hints: a post may replace another,
//! and a page may be brought by another thread first (word/W1).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::streams::Steps;

/// Posts at a time.
const POSTS: usize = 4;

/// Pages of sequences, each post in one word.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    posts: [AtomicU64; POSTS],
    turn: AtomicUsize,
}

impl Ahead {
    /// Posts pages, in place of the oldest post if there are many.
    pub(super) fn post(&self, steps: Steps) {
        let free = self.posts.iter().find(|post| is_empty(post.load(Ordering::Relaxed)));
        let post =
            free.unwrap_or_else(|| &self.posts[self.turn.fetch_add(1, Ordering::Relaxed) % POSTS]);
        // SeqCst: before the check for sleeping threads (room/L2), as in `is_empty`.
        post.store(steps.pack(), Ordering::SeqCst);
    }

    /// Takes up to `most` pages that come first in a post that begins within `within`.
    pub(super) fn take(&self, within: &Range<u32>, most: u16) -> Option<Steps> {
        self.posts.iter().find_map(|post| {
            let rest = |word| {
                let posted = Steps::unpack(word);
                let takes = posted.count > 0 && within.contains(&posted.from);
                takes.then(|| posted.split(most).1.pack())
            };
            let taken = post.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
            taken.ok().map(|word| Steps::unpack(word).split(most).0)
        })
    }

    /// Drops posts that begin within `within`.
    pub(super) fn forget(&self, within: &Range<u32>) {
        while self.take(within, u16::MAX).is_some() {}
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posts.iter().all(|post| is_empty(post.load(Ordering::SeqCst)))
    }
}

fn is_empty(word: u64) -> bool {
    Steps::unpack(word).count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_taken_once_and_in_order() {
        let ahead = Ahead::default();
        assert!(ahead.is_empty() && ahead.take(&(0..u32::MAX), 8).is_none());
        ahead.post(Steps { from: 30, count: 20, step: -1, writes: true });
        ahead.post(Steps::upwards(&(100..101)));
        assert_eq!(ahead.take(&(50..200), 8), Some(Steps::upwards(&(100..101))));
        assert_eq!(ahead.take(&(50..200), 8), None);
        let mut taken = Vec::new();
        while let Some(Steps { from, count, step: -1, writes: true }) = ahead.take(&(0..200), 8) {
            taken.push((from, count));
        }
        assert_eq!(taken, [(30, 8), (22, 8), (14, 4)]);
        assert!(ahead.is_empty());
    }

    #[test]
    fn what_is_forgotten_is_not_taken() {
        let ahead = Ahead::default();
        [10, 100, 30].into_iter().for_each(|from| ahead.post(Steps::upwards(&(from..from + 40))));
        ahead.forget(&(0..50));
        assert_eq!(ahead.take(&(0..u32::MAX), 1), Some(Steps::upwards(&(100..101))));
        ahead.forget(&(0..u32::MAX));
        assert!(ahead.is_empty());
    }

    #[test]
    fn new_posts_replace_others() {
        let ahead = Ahead::default();
        (0..100).for_each(|at| ahead.post(Steps::upwards(&(at * 10..at * 10 + 5))));
        let taken = std::iter::from_fn(|| ahead.take(&(0..u32::MAX), 5));
        let mut taken: Vec<_> = taken.map(|steps| steps.from).collect();
        taken.sort_unstable();
        assert_eq!(taken, [960, 970, 980, 990]);
    }
}
