//! A queue as the protocol's library drives it, which goes on where another server ended.
//!
//! Requests are served in their order, and each is answered before the next is taken. So those that
//! wait begin behind the used index, which is in the guest's memory, whatever the monitor says: one
//! that connects again may name the index up to which the guest has sent. A server that was killed
//! may also have read an event of the guest, or not have sent its own; so both are repeated once.
//! Why no memory for requests in flight is needed: `docs/use/disk-service.md`.

use std::fs::File;
use std::io::{self, Write as _};

use vhost_user_backend::{VringMutex, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error, QueueT};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

pub(super) type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Vring(VringMutex<Memory>);

impl<'a> VringStateGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateMutGuard<'a, Memory>>::G;
}

/// Passes calls on as they are.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $back:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $back {
            self.0.$name($($argument),*)
        })*
    };
}

impl VringT<Memory> for Vring {
    fn new(memory: Memory, max_queue_size: u16) -> Result<Self, Error> {
        VringMutex::new(memory, max_queue_size).map(Self)
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.0.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.0.get_mut()
    }

    /// The queue begins: its place and its indices were set before.
    fn set_kick(&self, file: Option<File>) {
        let mut state = self.0.get_mut();
        let used = state.get_queue().next_used();
        state.get_queue_mut().set_next_avail(used);
        drop(state);
        self.0.set_kick(repeated(file));
    }

    fn set_call(&self, file: Option<File>) {
        self.0.set_call(repeated(file));
    }

    pass_on! {
        add_used(head: u16, len: u32) -> Result<(), Error>;
        signal_used_queue() -> io::Result<()>;
        enable_notification() -> Result<bool, Error>;
        disable_notification() -> Result<(), Error>;
        needs_notification() -> Result<bool, Error>;
        set_enabled(enabled: bool) -> ();
        set_queue_info(table: u64, available: u64, used: u64) -> Result<(), Error>;
        queue_next_avail() -> u16;
        set_queue_next_avail(base: u16) -> ();
        set_queue_next_used(index: u16) -> ();
        queue_used_idx() -> Result<u16, Error>;
        set_queue_size(size: u16) -> ();
        set_queue_event_idx(enabled: bool) -> ();
        set_queue_ready(ready: bool) -> ();
        read_kick() -> io::Result<bool>;
        set_err(file: Option<File>) -> ();
    }
}

/// Announces an event by its descriptor.
fn repeated(file: Option<File>) -> Option<File> {
    file.inspect(|mut file| {
        // One event too many is not an error to either side, nor one that is announced already.
        let _ = file.write(&1_u64.to_ne_bytes());
    })
}
