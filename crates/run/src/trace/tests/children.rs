//! Children whose events come in an order that no real program brings about each time.

use std::io::{BufRead as _, BufReader};

use super::*;

/// A shell and its child, which the kernel knows as such; neither is traced.
struct Family {
    parent: std::process::Child,
    child: i32,
}

impl Family {
    fn new() -> Self {
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let output = parent.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a number");
        let child = line.trim().parse().expect("a number");
        Self { parent, child }
    }

    /// The child is killed, and its parent knows.
    fn bury(&mut self) {
        process::kill(self.child);
        self.parent.wait().expect("the shell");
    }
}

#[test]
fn a_child_that_is_killed_before_it_is_reported_is_not_followed() {
    let mut family = Family::new();
    let (parent, child) = (family.parent.id().cast_signed(), family.child);
    let (handle, mut tell) = (Handle::default(), |_| {});
    let witness = Arc::new(Witness::default());
    let mut tracer = Tracer::new(witness, &handle, Access::Call, &mut tell);
    let space = tracer.memory.exec(parent);
    tracer.spaces.add(space);
    tracer.tasks.insert(parent, Task { space: Some(space), ..Task::default() });

    tracer.unknown_event(child, Event::Stop { signal: 0 });
    assert!(tracer.unclaimed.contains(&child), "its parent has not reported it");
    family.bury();
    tracer.unknown_event(child, Event::Ended(ExitStatus::from_raw(libc::SIGKILL)));
    tracer.child_of(parent, child);
    assert_eq!(tracer.tasks.keys().collect::<Vec<_>>(), [&parent], "nobody tells its end again");
    assert!(tracer.unclaimed.is_empty() && tracer.stillborn.is_empty());
}
