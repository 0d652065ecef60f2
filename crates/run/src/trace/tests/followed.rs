//! Programs that are only followed.

use super::*;

/// Those of which only what they print and how they end is of interest.
pub(super) const PLAIN: [&str; 12] = [
    "threads",
    "crowds",
    "forks",
    "spawns",
    "exec-thread",
    "exit-thread",
    "leader-exits",
    "jobs",
    "handlers",
    "waits",
    "descriptors",
    "own-filter",
];

#[test]
fn programs_behave_as_without() {
    let Some(path) = tracee() else { return };
    for program in PLAIN.into_iter().chain(["storm"]) {
        let expected = alone(path, &[program]);
        let witness = Arc::new(Witness::default());
        assert_eq!(traced(path, &[program], &witness, Access::Call), expected, "{program}");
    }
}
