//! What a machine's VMM may send, in which order: the receiver of a migration as plain data.
//!
//! | stage | requests, and the stage that follows |
//! |:--|:--|
//! | begins | `Start`: memory |
//! | memory | `MemoryFd`: memory; `Config`, after a descriptor: configured |
//! | configured | `State`: complete |
//! | complete | `Complete`, `CompletePaused`: the machine is whole |
//!
//! `Abandon` may come at any stage. `Memory` would copy memory through the connection, which only a
//! migration to another machine does.

use super::layout::{Layout, SLOTS_MAX};
use super::wire::{Command, HEADER, Refused, Request, SLOT};
use crate::images::DOCUMENT_MAX;

/// Said of memory that comes through the connection.
const COPIED: &str = "it sends memory through the connection: give send-migration local=on, and \
                      the machine memory with shared=on";

/// What has to be received for a request, before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// The number of a slot, with a descriptor.
    Slot,
    /// The configuration, of so many bytes.
    Config(u64),
    /// The state, of so many bytes.
    State(u64),
    /// The machine is to be stored.
    Storing,
    /// The machine is not to be stored.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begins,
    Memory,
    Configured,
    Complete,
    Over,
}

/// A machine that is received.
#[derive(Debug)]
pub(super) struct Incoming {
    stage: Stage,
    slots: Vec<u32>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self { stage: Stage::Begins, slots: Vec::new() }
    }
}

impl Incoming {
    /// Takes a request; returns what belongs to it.
    ///
    /// # Errors
    /// [`Refused`]; nothing may follow.
    pub(super) fn request(&mut self, header: &[u8; HEADER]) -> Result<Needs, Refused> {
        let taken = Request::decode(header).and_then(|request| self.take(request));
        if taken.is_err() {
            self.stage = Stage::Over;
        }
        taken
    }

    fn take(&mut self, Request { command, len }: Request) -> Result<Needs, Refused> {
        let (needs, next) = match (self.stage, command) {
            (_, Command::Memory) => return Err(Refused(COPIED.to_owned())),
            (stage, Command::Abandon) if stage != Stage::Over => (Needs::Abandoned, Stage::Over),
            (Stage::Begins, Command::Start) => (Needs::Nothing, Stage::Memory),
            (Stage::Memory, Command::MemoryFd) => (Needs::Slot, Stage::Memory),
            (Stage::Memory, Command::Config) if self.slots.is_empty() => {
                return Err(Refused(COPIED.to_owned()));
            }
            (Stage::Memory, Command::Config) => (Needs::Config(len), Stage::Configured),
            (Stage::Configured, Command::State) => (Needs::State(len), Stage::Complete),
            (Stage::Complete, Command::Complete | Command::CompletePaused) => {
                (Needs::Storing, Stage::Over)
            }
            _ => return Err(Refused(format!("it sent {command:?} too early, too late or twice"))),
        };
        let lens = match command {
            Command::MemoryFd => SLOT as u64..=SLOT as u64,
            Command::Config | Command::State => 1..=DOCUMENT_MAX,
            _ => 0..=0,
        };
        if !lens.contains(&len) {
            return Err(Refused(format!(
                "it sent {command:?} with {len} bytes, which it cannot have"
            )));
        }
        self.stage = next;
        Ok(needs)
    }

    /// Takes the number of a slot, with which so many descriptors came.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn slot(&mut self, number: [u8; SLOT], fds: usize) -> Result<u32, Refused> {
        let number = u32::from_le_bytes(number);
        if fds != 1 {
            return Err(Refused(format!("{fds} descriptors came with slot {number}, not one")));
        }
        if self.slots.contains(&number) || self.slots.len() == SLOTS_MAX {
            return Err(Refused(format!("slot {number} came twice, or is one too many")));
        }
        self.slots.push(number);
        Ok(number)
    }

    /// Takes the configuration: its slots are those that have descriptors.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn config(&self, config: &[u8]) -> Result<Layout, Refused> {
        let layout = Layout::of(config)?;
        let named: Vec<u32> = layout.slots.iter().map(|slot| slot.number).collect();
        if let Some(&missing) = named.iter().find(|number| !self.slots.contains(number)) {
            return Err(Refused(format!("slot {missing} has no descriptor")));
        }
        if let Some(&surplus) = self.slots.iter().find(|number| !named.contains(number)) {
            return Err(Refused(format!("slot {surplus} is not in the configuration")));
        }
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &[u8] = br#"{"memory_manager_data":{"guest_ram_mappings":[
        {"slot":0,"gpa":0,"size":4096,"file_offset":0},
        {"slot":2,"gpa":4096,"size":4096,"file_offset":4096}]}}"#;

    fn ask(incoming: &mut Incoming, command: Command, len: u64) -> Result<Needs, Refused> {
        incoming.request(&Request::new(command, len).encode())
    }

    /// Returns one that has received all up to `Config`.
    fn with_memory() -> Incoming {
        let mut incoming = Incoming::default();
        assert_eq!(ask(&mut incoming, Command::Start, 0).expect("taken"), Needs::Nothing);
        for slot in [2_u32, 0] {
            assert_eq!(ask(&mut incoming, Command::MemoryFd, 4).expect("taken"), Needs::Slot);
            assert_eq!(incoming.slot(slot.to_le_bytes(), 1).expect("taken"), slot);
        }
        incoming
    }

    #[test]
    fn a_machine_comes_in_this_order() {
        for last in [Command::Complete, Command::CompletePaused] {
            let mut incoming = with_memory();
            let needs = ask(&mut incoming, Command::Config, 9).expect("taken");
            assert_eq!(needs, Needs::Config(9));
            assert_eq!(incoming.config(CONFIG).expect("taken").pages(), 2);
            assert_eq!(ask(&mut incoming, Command::State, 7).expect("taken"), Needs::State(7));
            assert_eq!(ask(&mut incoming, last, 0).expect("taken"), Needs::Storing);
            let refused = ask(&mut incoming, last, 0).expect_err("refused").0;
            assert_eq!(refused, format!("it sent {last:?} too early, too late or twice"));
        }
    }

    #[test]
    fn every_other_order_is_refused() {
        use Command as C;
        let all = [
            (C::Start, 0),
            (C::MemoryFd, 4),
            (C::Config, 9),
            (C::State, 7),
            (C::Complete, 0),
            (C::CompletePaused, 0),
            (C::PageFault, 16),
            (C::Memory, 16),
        ];
        // Which may follow, by how many of the right ones came before.
        let right: [&[C]; 4] = [
            &[C::Start],
            &[C::MemoryFd, C::Config],
            &[C::State],
            &[C::Complete, C::CompletePaused],
        ];
        for (stage, right) in right.iter().enumerate() {
            for (command, len) in all {
                let mut incoming = if stage == 0 { Incoming::default() } else { with_memory() };
                let before = [(C::Config, 9), (C::State, 7)];
                before.iter().take(stage.saturating_sub(1)).for_each(|(command, len)| {
                    ask(&mut incoming, *command, *len).expect("taken");
                });
                let taken = ask(&mut incoming, command, len);
                assert_eq!(taken.is_ok(), right.contains(&command), "{stage} {command:?}");
                if taken.is_err() {
                    // Nothing may follow.
                    assert!(ask(&mut incoming, right[0], 0).is_err());
                }
            }
            let mut incoming = if stage == 0 { Incoming::default() } else { with_memory() };
            let needs = ask(&mut incoming, C::Abandon, 0).expect("taken");
            assert_eq!(needs, Needs::Abandoned);
        }
    }

    #[test]
    fn lengths_have_bounds() {
        for (command, len) in [
            (Command::Start, 1),
            (Command::MemoryFd, 3),
            (Command::MemoryFd, 8),
            (Command::Config, 0),
            (Command::Config, DOCUMENT_MAX + 1),
            (Command::Config, u64::MAX),
        ] {
            let mut incoming = Incoming::default();
            if command != Command::Start {
                incoming = with_memory();
            }
            let refused = ask(&mut incoming, command, len).expect_err("refused");
            let said = format!("it sent {command:?} with {len} bytes, which it cannot have");
            assert_eq!(refused.0, said);
        }
    }

    #[test]
    fn slots_have_a_descriptor_each_and_are_those_of_the_configuration() {
        let mut incoming = with_memory();
        let refused = |result: Result<u32, Refused>| result.expect_err("refused").to_string();
        assert!(refused(incoming.slot(5_u32.to_le_bytes(), 0)).contains("0 descriptors"));
        assert!(refused(incoming.slot(5_u32.to_le_bytes(), 2)).contains("2 descriptors"));
        assert!(refused(incoming.slot(2_u32.to_le_bytes(), 1)).contains("slot 2 came twice"));
        incoming.slot(1_u32.to_le_bytes(), 1).expect("taken");
        let misses = |incoming: &Incoming| incoming.config(CONFIG).expect_err("refused").0;
        assert_eq!(misses(&incoming), "slot 1 is not in the configuration");
        let mut incoming = Incoming::default();
        assert_eq!(misses(&incoming), "slot 0 has no descriptor");
        for number in 0..64_u32 {
            incoming.slot(number.to_le_bytes(), 1).expect("taken");
        }
        assert!(refused(incoming.slot(64_u32.to_le_bytes(), 1)).contains("one too many"));
        let mut started = Incoming::default();
        ask(&mut started, Command::Start, 0).expect("taken");
        let refused = ask(&mut started, Command::Config, 9).expect_err("refused");
        assert!(refused.to_string().contains("local=on"), "{refused}");
    }
}
