use super::*;
use crate::run::memory::{Attached, Change, Follow};

/// Wants nothing and is told nothing.
struct Nothing;

impl Memory for Nothing {
    fn exec(&self, _: SpaceId, _: i32) {}
    fn before(&self, _: SpaceId, _: &Change) -> Follow {
        Follow::Return
    }
    fn after(&self, _: SpaceId, _: &Change, _: i64) {}
    fn wants(&self, _: SpaceId) -> bool {
        false
    }
    fn attach(&self, _: SpaceId, _: Attached) {}
    fn cannot_attach(&self, _: SpaceId, _: String) {}
    fn fork(&self, _: SpaceId) -> bool {
        false
    }
    fn forked(&self, _: SpaceId, _: Option<(SpaceId, i32, Option<Attached>)>) {}
    fn gone(&self, _: SpaceId) {}
}

fn run(program: &str, arguments: &[&str]) -> Exit {
    let program = Program::new(program, arguments.iter().copied());
    trace(&program, Arc::new(Nothing), &Handle::default(), Access::Call, &mut |_| {})
        .expect("traced")
}

#[test]
fn exits_are_those_of_the_program() {
    assert_eq!(run("true", &[]), Exit::Code(0));
    assert_eq!(run("sh", &["-c", "exit 7"]), Exit::Code(7));
    assert_eq!(run("sh", &["-c", "kill -9 $$"]), Exit::Signal { number: 9, core: false });
    assert_eq!(run("/nowhere/at/all", &[]).status(), 127);
    assert_eq!(run("/etc/passwd", &[]).status(), 126);
}
