//! Helpers for tests of engines and backings.

mod conformance;
pub mod replies;
mod sim;

pub use conformance::conformance;
pub use sim::{SimEngine, SimFault, SimFaults};
