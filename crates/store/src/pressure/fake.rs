//! Pressure for tests.

use super::level::{Level, Pressure};

/// A pressure that follows a script.
#[derive(Debug)]
pub struct FakePressure {
    levels: Vec<Level>,
    next: usize,
}

impl FakePressure {
    /// Returns one level of `levels` after the other, and the last one from then on; it is calm if
    /// there are none.
    pub fn new(levels: Vec<Level>) -> Self {
        Self { levels, next: 0 }
    }
}

impl Pressure for FakePressure {
    fn level(&mut self) -> Level {
        let level = self.levels.get(self.next).or(self.levels.last()).copied();
        self.next = (self.next + 1).min(self.levels.len());
        level.unwrap_or(Level::Calm)
    }

    fn source(&self) -> &str {
        "a script"
    }
}
