//! Reports of memory that cannot leave.

use crate::engine::Engine;
use crate::options::Staying;
use crate::spaces::managed::lock;
use crate::sys::proc;

impl Engine {
    /// Returns the kinds of memory that turned out to stay since the last call and are large.
    pub(crate) fn newly_staying(&self) -> Vec<Staying> {
        let untold = lock(&self.shared.kinds).untold();
        let named = |one: Staying| Staying { program: proc::name(one.pid), ..one };
        untold.into_iter().map(named).collect()
    }
}
