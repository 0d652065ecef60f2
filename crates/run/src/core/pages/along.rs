//! How many of the pages that come back come along with others.

/// Pages that came back that are remembered, of which the older ones count half.
const BACK_MAX: u32 = 2048;

/// How many pages came back, and how many of them came along with others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back([u32; 2]);

impl Back {
    /// Counts a page that came back.
    pub(super) fn count(&mut self, along: bool) {
        self.0[0] += 1;
        self.0[1] += u32::from(along);
        if self.0[0] >= BACK_MAX {
            self.0 = self.0.map(|all| all / 2);
        }
    }

    /// Returns whether most pages that come back come along with others: the few for which a thread
    /// waits would have to stand against those by their touches.
    pub(super) fn come_along(&self) -> bool {
        self.0[1] * 2 > self.0[0]
    }
}
