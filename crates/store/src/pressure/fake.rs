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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_ends_with_its_last_level() {
        let mut fake = FakePressure::new(vec![Level::Calm, Level::Tight(0.5)]);
        let levels: Vec<_> = (0..4).map(|_| fake.level().measure()).collect();
        assert_eq!(levels, [0.0, 0.5, 0.5, 0.5]);
        assert_eq!(FakePressure::new(Vec::new()).level(), Level::Calm);
    }
}
