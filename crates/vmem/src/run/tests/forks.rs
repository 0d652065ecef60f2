//! Real children of this process: their memory is managed by the engine in their parent, which
//! reads and writes it as another process's. (A page that is missing there is a fault there.)

use std::sync::Arc;

use super::*;

const CHILD: SpaceId = SpaceId(2);

/// Makes calls in a child.
struct There(Arc<Mutex<sys::Child>>);

impl Inside for There {
    fn call(&mut self, calls: &[Call], results: &mut [i64]) -> io::Result<()> {
        let mut child = lock(&self.0);
        for (call, result) in calls.iter().zip(results) {
            *result = child.call(call)?;
        }
        Ok(())
    }
}

/// Opens a userfaultfd and maps a staging in the child.
fn attach(world: &World, child: sys::Child) -> (Attached, Arc<Mutex<sys::Child>>) {
    let mut child = child;
    let mut call = |number, args| child.call(&Call { number: number as u64, args }).unwrap();
    let flags = libc::O_CLOEXEC as u64;
    let number = call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]);
    let staging = world.staging.clone();
    let (access, kind) = (
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
    );
    let args = [staging.start as u64, staging.len() as u64, access, kind, u64::MAX, 0];
    assert_eq!(call(libc::SYS_mmap, args), staging.start as i64);
    let uffd = Uffd::from_fd(child.descriptor(number as i32));
    uffd.handshake(Features::THREAD_ID.with(Features::MOVE)).unwrap();
    let pid = child.pid;
    let child = Arc::new(Mutex::new(child));
    let attached = Attached {
        uffd,
        number: number as i32,
        inside: Box::new(There(Arc::clone(&child))),
        helper: pid,
        arguments: staging.start + STAGING,
        staging,
        pid,
    };
    (attached, child)
}

/// Forks with the tracer at its side.
fn fork(world: &World) -> Arc<Mutex<sys::Child>> {
    assert!(world.engine.fork(SPACE), "it has closed memory");
    let child = sys::fork();
    let pid = child.pid;
    let (attached, child) = attach(world, child);
    world.engine.forked(SPACE, Some((CHILD, pid, Some(attached))));
    child
}

fn end(world: &World, child: &Mutex<sys::Child>) {
    lock(child).end();
    world.engine.gone(CHILD);
}

#[test]
fn a_child_has_what_its_parent_had_and_both_go_their_way() {
    let Some(world) = World::new("a_child_has_what_its_parent_had", 8 * MIB) else { return };
    let memory = world.map(24 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    let stored = world.stats().stored_pages;
    assert!(stored > 3000, "most of it is stored");
    let child = fork(&world);
    let pid = lock(&child).pid;
    let reader = sys::Child::reader(pid);
    // Parent and child change every second page, each its own way.
    for (at, page) in pages(&memory).enumerate() {
        match at % 4 {
            0 => fill(page, 2),
            2 => reader.put(page, 77).unwrap(),
            _ => {}
        }
    }
    for (at, page) in pages(&memory).enumerate() {
        let original = (page as u64) ^ (1 << 20);
        let expected = if at % 4 == 2 { 77 } else { original };
        assert_eq!(reader.get(page).unwrap(), expected, "page {at} of the child");
        verify(page, if at % 4 == 0 { 2 } else { 1 });
    }
    let stats = world.stats();
    assert_eq!((stats.spaces, stats.forks_total), (2, 1));
    assert_eq!(stats.over_limit_total, 0, "{stats:?}");
    world.check();
    world.engine.space(CHILD).lock().check();
    end(&world, &child);
    pages(&memory).for_each(|page| {
        sys::get(page);
    });
    world.unmap(&memory);
    world.wait_until_released();
}

#[test]
fn a_child_that_ends_at_once_releases_what_it_shared() {
    let Some(world) = World::new("a_child_that_ends_at_once", 4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    for _ in 0..5 {
        let child = fork(&world);
        end(&world, &child);
        pages(&memory).step_by(7).for_each(|page| verify(page, 1));
    }
    world.unmap(&memory);
    world.wait_until_released();
    world.check();
}

#[test]
fn a_fork_that_fails_changes_nothing() {
    let Some(world) = World::new("a_fork_that_fails", 4 * MIB) else { return };
    let memory = world.map(16 * MIB);
    pages(&memory).for_each(|page| fill(page, 1));
    assert!(world.engine.fork(SPACE));
    // Pages arrive meanwhile, above the limit if they must: nothing leaves.
    pages(&memory).step_by(16).for_each(|page| verify(page, 1));
    world.engine.forked(SPACE, None);
    pages(&memory).for_each(|page| verify(page, 1));
    assert!(world.resident() <= 4 * MIB);
    world.unmap(&memory);
    world.wait_until_released();
    world.check();
}

#[test]
fn a_space_that_is_open_forks_without_ado() {
    let world = World::unattached(8 * MIB);
    world.map(MIB);
    assert!(!world.engine.fork(SPACE));
    world.engine.forked(SPACE, Some((CHILD, std::process::id() as i32, None)));
    assert_eq!(world.stats().spaces, 2);
    world.engine.gone(CHILD);
    assert_eq!(world.stats().charged_bytes, MIB as u64);
}
