//! How much memory is wanted back, and the trait of its sources.

use std::fmt;

/// How much memory is wanted back.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Level {
    /// There is enough.
    Calm,
    /// There is not, by a measure above 0 and up to 1: at 1, everything that can be given up should
    /// be.
    Tight(f64),
}

impl Level {
    /// Returns the level of a measure, which may be beyond 0 or 1.
    pub(super) fn of(measure: f64) -> Self {
        if measure > 0.0 { Self::Tight(measure.min(1.0)) } else { Self::Calm }
    }

    /// Returns the measure, 0 if there is enough.
    pub fn measure(self) -> f64 {
        match self {
            Self::Calm => 0.0,
            Self::Tight(measure) => measure,
        }
    }
}

/// Something that knows how short memory is.
pub trait Pressure: Send + fmt::Debug {
    /// Returns the level now. To be called about every second, by one thread.
    fn level(&mut self) -> Level;

    /// Returns what is measured, for people.
    fn source(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_above_zero_and_up_to_one() {
        assert_eq!(Level::of(-0.1), Level::Calm);
        assert_eq!(Level::of(0.0), Level::Calm);
        assert_eq!(Level::of(f64::NAN), Level::Calm);
        assert_eq!(Level::of(0.25), Level::Tight(0.25));
        assert_eq!(Level::of(7.0), Level::Tight(1.0));
    }
}
