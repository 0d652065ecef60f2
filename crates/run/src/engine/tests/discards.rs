//! What a program gives up while its memory is being closed and leaves.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use zfold_testing::wait::PATIENCE;

use super::*;
use crate::limit::close::close;

/// A thread that begins to give memory up while an attempt to close it fails may be slow to go on.
#[test]
fn what_is_given_up_while_it_is_being_closed_stays_away() {
    const ROUNDS: usize = 200;
    let Some(world) = World::alone(64 * MIB) else { return };
    let (world, now, done) = (&world, &Mutex::new(0..0), &AtomicBool::new(false));
    let watched = &AtomicUsize::new(0);
    let managed = &world.engine.space(world.space);
    let attempt = || {
        let memory = lock(now).clone();
        if memory.is_empty() {
            return thread::yield_now();
        }
        let pages = pages_of(&memory);
        let space = managed.lock();
        let access = managed.access().unwrap();
        let is_open = !space.closed().touches(&pages);
        if is_open && access.register(managed.pid(), &pages).is_ok() {
            watched.store(memory.start, Ordering::Release);
            thread::sleep(Duration::from_micros(100));
            let _ = access.unregister(&pages);
        }
        drop(space);
        close(&world.engine.shared, managed, &pages, 0);
        world.request(Request::PageOut { range: memory });
    };
    let back = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                attempt();
            }
        });
        for _ in 0..3 {
            // What has to wait for the lock of the address space waits longest.
            scope.spawn(|| {
                let other = world.unwatched(page_len());
                while !done.load(Ordering::Relaxed) {
                    world.unmap(&other);
                    assert_eq!(sys::map(other.start, page_len(), true), other.start as i64);
                }
            });
        }
        let discards = scope.spawn(|| {
            (0..ROUNDS).find(|_| {
                let memory = world.unwatched(2 * page_len());
                pages(&memory).for_each(|page| fill(page, 1));
                *lock(now) = memory.clone();
                let since = Instant::now();
                while watched.load(Ordering::Acquire) != memory.start {
                    assert!(since.elapsed() < PATIENCE, "it is not closed");
                    thread::yield_now();
                }
                world.discard(&memory, libc::MADV_DONTNEED);
                let is_back = pages(&memory).any(|page| sys::get(page) != 0);
                *lock(now) = 0..0;
                world.unmap(&memory);
                is_back
            })
        });
        let back = discards.join();
        done.store(true, Ordering::Relaxed);
        back.unwrap()
    });
    assert_eq!(back, None, "old content came back");
}
