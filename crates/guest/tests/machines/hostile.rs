//! Peers that send something else than a machine.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use zfold_guest::{Progress, receive};
use zfold_testing::machines::{
    ABANDON, COMPLETE, COMPLETE_PAUSED, CONFIG, DONE, How, MEMORY, MEMORY_FD, Machine, PAGE_FAULT,
    REFUSED, START, STATE, Sender, config,
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
    says("sent Config too early", &|peer| assert_eq!(peer.ask(CONFIG, b"{}", None), REFUSED));
    says("sent PageFault", &|peer| assert_eq!(peer.ask(PAGE_FAULT, &[0; 16], None), REFUSED));
    says("shared=on", &|peer| {
        assert_eq!(peer.ask(START, &[], None), DONE);
        assert_eq!(peer.ask(CONFIG, &machine.config, None), REFUSED);
    });
    says("local=on", &|peer| {
        assert_eq!(peer.ask(START, &[], None), DONE);
        assert_eq!(peer.ask(MEMORY, &[0; 32], None), REFUSED);
    });
    for command in [0, 10, u16::MAX] {
        let part = format!("unknown command {command}");
        says(&part, &|peer| assert_eq!(peer.ask(command, &[], None), REFUSED));
    }
    says("version 1", &|peer| {
        peer.header(START, 1, 0);
        assert_eq!(peer.answer(), REFUSED);
    });
    says("sent State too early, too late or twice", &|peer| {
        assert!(machine.send_to(peer).iter().all(|&answer| answer == DONE));
        assert_eq!(peer.ask(STATE, b"again", None), REFUSED);
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
fn lengths_that_nobody_has_are_refused_before_memory_is_taken() {
    let world = World::new(None);
    let machine = Machine::new(50, 1);
    for (command, len) in [(CONFIG, u64::MAX), (CONFIG, (64 << 20) + 1), (STATE, 1 << 40)] {
        let said = hostile(&world, |peer| {
            assert_eq!(peer.ask(START, &[], None), DONE);
            machine.slots.iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
            if command == STATE {
                assert_eq!(peer.ask(CONFIG, &machine.config, None), DONE);
            }
            peer.header(command, 0, len);
            assert_eq!(peer.answer(), REFUSED);
        });
        assert!(said.contains(&format!("{len} bytes")), "{said}");
    }
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
    says("0 descriptors", &|peer| peer.ask(MEMORY_FD, &number, None));
    says("2 descriptors", &|peer| {
        let file = machine.slots[0].file.as_fd();
        peer.header(MEMORY_FD, 0, 4);
        peer.payload(&number, &[file, file, file]);
        peer.answer()
    });
    says("slot 4 came twice", &|peer| {
        assert_eq!(peer.slot(&machine.slots[0]), DONE);
        peer.slot(&machine.slots[0])
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
    says("slot 7 is not in the configuration", &|peer| {
        machine.slots.iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
        peer.ask(CONFIG, &config(&machine.slots[..2], ""), None)
    });
    says("does not say where its memory lies", &|peer| {
        machine.slots.iter().for_each(|slot| assert_eq!(peer.slot(slot), DONE));
        peer.ask(CONFIG, br#"{"memory_manager_data":{}}"#, None)
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
        let named = ("web", None);
        receive(stream, &images, named, &Progress::default(), |_| Err("not now".to_owned()))
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
