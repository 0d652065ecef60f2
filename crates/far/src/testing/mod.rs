//! What tests of engines and of backings need.

mod conformance;
pub mod replies;
mod sim;

pub use conformance::conformance;
pub use sim::{SimEngine, SimFault, SimFaults};
