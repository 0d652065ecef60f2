//! The choices in zsmalloc besides its lock design: rules of Linux's zsmalloc, old and new.

/// The rule that chooses how many pages a zspage takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Chooser {
    /// Linux up to about 6.3 ("old"): the fewest pages with the best share of used bytes, in
    /// whole percent.
    UsedPercent,
    /// Linux since ("new"): the fewest pages with the fewest bytes wasted; one page for powers of
    /// two.
    #[default]
    LeastWaste,
}

impl Chooser {
    /// All choosers.
    pub const ALL: [Self; 2] = [Self::UsedPercent, Self::LeastWaste];

    /// Returns its name: `old` or `new`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UsedPercent => "old",
            Self::LeastWaste => "new",
        }
    }
}

/// How zspages are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Grouping {
    /// Linux up to 6.3: empty, almost empty (at most three quarters), almost full, full. A list
    /// keeps a fuller zspage in front of a newcomer.
    Four,
    /// Linux since 6.4: empty, ten groups of ten percent, full. Newcomers go first.
    #[default]
    Twelve,
}

/// The compaction algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compaction {
    /// Linux up to 6.3: takes a source from the emptier half and spreads it over targets, putting
    /// each target back after it was used; a target may become the next source.
    PerSource,
    /// Linux since 6.4: keeps filling the fullest zspage from the emptiest ones.
    #[default]
    KeepTarget,
}

/// When the pages of a zspage get their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Commit {
    /// All at once, when the zspage is made: the kernel's way.
    Eager,
    /// One by one, when the first object that needs a page is taken. Matters to pools whose
    /// classes have few zspages.
    #[default]
    Lazy,
}
