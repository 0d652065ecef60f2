//! Guests that are filled: when the pages are put in that nobody asked for.

use std::cell::Cell;
use std::collections::HashSet;

use zfold_testing::Random;
use zfold_uffd::Event;
use zfold_uffd::page::PAGE;

use super::succession::{Kept, guest};
use super::{BASE, Kernel, LARGE, PAGES, Twin, Words};
use crate::core::fault::Next;
use crate::core::guest::{GIVES_WAY, GIVES_WAY_NS, Guest};

#[test]
fn filling_comes_behind_the_working_set_and_waits_for_its_time() {
    let wanted = [LARGE + 3, LARGE + 9];
    let set = wanted.map(|page| page as u64).into();
    let image = Words { unreadable: Cell::new(None), recorded: false, set };
    let (mut guest, mut kernel) = (guest(Kept::new()), Kernel::new(Twin::None, Random::new(1)));
    guest.fill();
    while guest.filled < 2 {
        guest.step(&mut kernel, &image, 0);
    }
    guest.due = 5;
    assert_eq!(guest.step(&mut kernel, &image, 4), Next::Now);
    assert!(guest.is_paced(4) && !guest.is_paced(5));
    assert!((0..PAGES).all(|page| kernel.pages[page].is_some() == wanted.contains(&page)));
    while guest.step(&mut kernel, &image, 5) != Next::Idle {}
    assert!(guest.is_complete());
}

#[test]
fn filling_gives_way_to_faults_but_not_for_ever() {
    let image = Words { unreadable: Cell::new(None), recorded: false, set: HashSet::new() };
    let (mut guest, mut kernel) = (guest(Kept::new()), Kernel::new(Twin::None, Random::new(1)));
    let there = |kernel: &Kernel| kernel.pages.iter().flatten().count();
    guest.fill();
    // There is no working set.
    guest.step(&mut kernel, &image, 0);
    let mut fault = |guest: &mut Guest, now| {
        let address = BASE + (LARGE + 1) * PAGE;
        kernel.unread.push(Event::Missing { address, thread: 0, writes: false });
        guest.step(&mut kernel, &image, now);
        there(&kernel)
    };
    assert_eq!(fault(&mut guest, 7), 1, "the page that was asked for, and no other");
    assert!(guest.is_paced(6 + GIVES_WAY_NS) && !guest.is_paced(7 + GIVES_WAY_NS));
    // The guest asks for it again and again.
    let asked = (1..).find(|n| fault(&mut guest, 7 + n * GIVES_WAY_NS / 2) > 1);
    assert!((u64::from(GIVES_WAY)..u64::from(GIVES_WAY) + 3).contains(&asked.unwrap()));
}

#[test]
fn a_working_set_comes_in_large_pieces() {
    let set = (LARGE as u64..PAGES as u64).collect();
    let image = Words { unreadable: Cell::new(None), recorded: false, set };
    let (mut guest, mut kernel) = (guest(Kept::new()), Kernel::new(Twin::None, Random::new(1)));
    guest.step(&mut kernel, &image, 0);
    let copied = kernel.pages.iter().flatten().filter(|word| **word > 0).count();
    assert!(copied >= 64, "{copied} of 72 pages that are not zeros");
}
