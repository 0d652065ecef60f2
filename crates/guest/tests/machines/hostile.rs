//! Peers that send something else than a machine. Which order, lengths and slots are refused is
//! tested beside `incoming`; here, that nothing is left.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use zfold_guest::receive;
use zfold_testing::machines::{
    ABANDON, COMPLETE, COMPLETE_PAUSED, CONFIG, DONE, How, MEMORY, MEMORY_FD, Machine, REFUSED,
    START, STATE, Sender,
};

use crate::{PAGE, World, how, restored, same};

/// Lets a peer do something; returns why it was refused.
fn hostile(world: &World, act: impl FnOnce(&mut Sender)) -> String {
    let (path, receiving) = world.receives("web", None);
    let mut peer = Sender::connect(&path);
    act(&mut peer);
    drop(peer);
    let refused = receiving.join().expect("no panic").expect_err("refused").to_string();
    world.has_nothing();
    refused
}

#[test]
fn peers_that_keep_no_order_leave_nothing() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    let says = |part: &str, act: &dyn Fn(&mut Sender)| {
        let said = hostile(&world, act);
        assert!(said.contains(part), "{said}");
    };
    says("disconnected", &|_| {});
    says("shared=on", &|peer| {
        assert_eq!(peer.ask(START, &[], None), DONE);
        assert_eq!(peer.ask(CONFIG, &machine.config, None), REFUSED);
    });
    says("local=on", &|peer| {
        assert_eq!(peer.ask(START, &[], None), DONE);
        assert_eq!(peer.ask(MEMORY, &[0; 32], None), REFUSED);
    });
    says("sent Start too early, too late or twice", &|peer| {
        assert!(machine.send_to(peer).iter().all(|&answer| answer == DONE));
        assert_eq!(peer.ask(START, &[], None), REFUSED);
        // It is answered still, as earlier versions expect.
        assert_eq!(peer.ask(ABANDON, &[], None), DONE);
    });
    says("abandoned", &|peer| {
        assert!(machine.send_to(peer).iter().all(|&answer| answer == DONE));
        assert_eq!(peer.ask(ABANDON, &[], None), DONE);
    });
}

#[test]
fn slots_without_right_files_are_refused() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    let says = |part: &str, act: &dyn Fn(&mut Sender) -> u16| {
        let said = hostile(&world, |peer| {
            assert_eq!(peer.ask(START, &[], None), DONE);
            assert_eq!(act(peer), REFUSED);
        });
        assert!(said.contains(part), "{said}");
    };
    let number = 4_u32.to_le_bytes();
    says("2 descriptors", &|peer| {
        let file = machine.slots[0].file.as_fd();
        peer.header(MEMORY_FD, 0, 4);
        peer.payload(&number, &[file, file, file]);
        peer.answer()
    });
    let (pipe, _other) = UnixStream::pair().expect("a pair");
    let folder = File::open("/").expect("a folder");
    for fd in [pipe.as_fd(), folder.as_fd()] {
        says("not a file in memory of ordinary pages", &|peer| {
            peer.ask(MEMORY_FD, &number, Some(fd))
        });
    }
    says("slot 7 has no descriptor", &|peer| {
        machine.slots[..2].iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
        peer.ask(CONFIG, &machine.config, None)
    });
    says("the slot ends at 339968", &|peer| {
        machine.slots[0].file.set_len(82 * PAGE).expect("shorter");
        machine.slots.iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
        peer.ask(CONFIG, &machine.config, None)
    });
}

#[test]
fn a_file_that_shrinks_or_a_store_that_is_full_leaves_nothing_and_the_machine_goes_on() {
    let world = World::new(Some(1 << 20));
    let machine = Machine::new(50, 1);
    let said = hostile(&world, |peer| {
        assert!(machine.send_to(peer).iter().all(|&answer| answer == DONE));
        machine.slots[0].file.set_len(50 * PAGE).expect("shorter");
        assert_eq!(peer.ask(COMPLETE_PAUSED, &[], None), REFUSED);
    });
    assert!(said.contains("shorter"), "{said}");
    let mut large = Machine::new(50, 1);
    large.state = zfold_testing::random::noise(1, 8 << 20);
    let said = hostile(&world, |peer| {
        assert!(large.send_to(peer).iter().all(|&answer| answer == DONE));
        assert_eq!(peer.ask(COMPLETE, &[], None), REFUSED);
    });
    assert!(said.contains("the limit is reached"), "{said}");
    // There is room again.
    world.save("web", &Machine::new(50, 1), None);
}

#[test]
fn a_peer_that_disappears_in_the_middle_leaves_nothing() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    for step in 0..8 {
        let said = hostile(&world, |peer| {
            let mut steps = 0;
            let mut next = || (steps += 1, steps <= step).1;
            if next() {
                peer.ask(START, &[], None);
            }
            for slot in &machine.slots {
                if next() {
                    peer.slot(slot);
                }
            }
            if next() {
                peer.ask(CONFIG, &machine.config, None);
            }
            if next() {
                peer.ask(STATE, &machine.state, None);
            }
            if next() {
                peer.header(COMPLETE, 0, 0);
                peer.answer();
                panic!("it was complete");
            }
        });
        assert!(said.contains("disconnected"), "{said}");
        if step == 6 {
            break;
        }
    }
    // Within a header, and within a document.
    hostile(&world, |peer| peer.payload(&[1, 0, 0], &[]));
    hostile(&world, |peer| {
        assert_eq!(peer.ask(START, &[], None), DONE);
        machine.slots.iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
        peer.header(CONFIG, 0, 1000);
        peer.payload(&machine.config[..100], &[]);
    });
}

#[test]
fn an_image_whose_name_is_taken_or_that_is_not_wanted_does_not_come() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    let (path, listener) = world.listen();
    let images = Arc::clone(&world.images);
    let receiving = thread::spawn(move || {
        let stream = listener.accept().expect("a sender").0;
        receive(stream, &images, ("web", None), |_| Err("not now".to_owned()))
    });
    assert_eq!(machine.send(&path, COMPLETE), REFUSED);
    let refused = receiving.join().expect("no panic").expect_err("refused");
    assert_eq!(refused.to_string(), "not now");
    world.has_nothing();
    world.save("web", &machine, None);
    let (path, receiving) = world.receives("web", None);
    assert_eq!(machine.send(&path, COMPLETE), REFUSED);
    let refused = receiving.join().expect("no panic").expect_err("refused").to_string();
    assert!(refused.contains("there is already an image web"), "{refused}");
    let (path, receiving) = world.receives("later", Some("nothing"));
    assert_eq!(machine.send(&path, COMPLETE), REFUSED);
    let refused = receiving.join().expect("no panic").expect_err("refused").to_string();
    assert!(refused.contains("no image nothing"), "{refused}");
    assert_eq!(world.images.list().len(), 1);
}

/// The answer does not get there, but the image is whole, and may be all that is left.
#[test]
fn a_machine_whose_sender_left_at_the_end_is_saved() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    let (path, receiving) = world.receives("web", None);
    let mut peer = Sender::connect(&path);
    assert!(machine.send_to(&mut peer).iter().all(|&answer| answer == DONE));
    peer.header(COMPLETE_PAUSED, 0, 0);
    drop(peer);
    let received = receiving.join().expect("no panic").expect("received");
    assert!(!received.was_heard);
    let (_, received) = restored(world.restore("web", how(false, false), How::default()));
    same(&received.machine, &machine);
}
