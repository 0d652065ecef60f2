//! How short of memory the machine is.

/// How much memory is wanted back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// None.
    None,
    /// Some: from 0, a little, to 1, as much as can be had.
    Some(f32),
}

/// Something that tells how short of memory the machine is.
pub trait Pressure: Send {
    /// Returns the need at this moment.
    fn level(&mut self) -> Level;
}
