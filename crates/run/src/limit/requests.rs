//! Requests to the watcher: work that the tracer must not wait for, each while a thread is held.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::ranges::{PageNo, Pages, Ranges, bytes_of, page_of, pages_of};
use crate::core::space::Helpers;
use crate::faults::answer::{answer_faults, bring_in, enter};
use crate::faults::ends;
use crate::faults::messages::{copy_of, drain, flush};
use crate::limit::close::{Open, closable, close, close_open, close_rest};
use crate::link::{Attached, Request, Ticket};
use crate::shared::Shared;
use crate::spaces::access::Access;
use crate::spaces::asked::{Task, Work};
use crate::spaces::helper::Helper;
use crate::spaces::managed::{Held, Managed, lock};
use crate::spaces::maps::{Mapping, argument_pages, mapping_around, mappings, may_be_locked};
use crate::sys::proc::is_gone;
use crate::sys::procmap::within;
use crate::sys::remote;
use zfold_uffd::page::page_len;

/// Does the work, and lets the thread continue. In a tree that is being ended only its end goes on:
/// something else might see pages that did not come as zeros.
pub(crate) fn perform(shared: &Arc<Shared>, work: Work) {
    let Work { managed, task, ticket } = work;
    let is_end = matches!(task, Task::End { .. });
    let thread = ticket.map_or(0, |ticket| ticket.thread);
    match task {
        Task::Request(request) => requested(shared, &managed, request, thread),
        Task::Attached { mut attached, is_new } => {
            if !is_new {
                set_access(&managed, &mut attached);
            }
            now_attached(shared, &managed, *attached);
        }
        Task::End { pages, robust } => {
            ends::bring(shared, &managed, thread, &pages, robust);
        }
        Task::Born { child, attached } => born(shared, &managed, &child, *attached),
        Task::Unborn => managed.lock().release(),
        Task::Gone => bury(shared, &managed),
    }
    if let Some(ticket) = ticket
        && (is_end || !shared.is_ending())
    {
        shared.tracing.go_on(ticket);
    }
}

/// Does what the tracer asks for while a thread is held.
fn requested(shared: &Arc<Shared>, managed: &Arc<Managed>, request: Request, thread: i32) {
    match request {
        Request::Open { range } => {
            let pages = pages_of(&range);
            // First, so that a check of the program's own memory in between finds it (close/C5).
            let tasks = lock(&managed.tasks);
            if tasks.contains(&thread) {
                lock(&managed.asked_for).insert(thread, pages.clone());
            }
            drop(tasks);
            give_back(shared, managed, &pages, true);
        }
        Request::Level { range, len } => {
            about_to_move(shared, managed, &pages_of(&range), len.div_ceil(page_len()));
        }
        Request::Moved { from, to } => {
            moved(shared, managed, &pages_of(&from), to.as_ref().map(pages_of));
        }
        Request::Mapped { range } => {
            let pages = pages_of(&range);
            // Memory that was there before and stayed open is gone.
            managed.lock().take_back(&pages);
            close(shared, managed, &pages, 1);
        }
        Request::Grown { end } => grown(shared, managed, page_of(end - 1)),
        Request::Hold { pages } => hold(shared, managed, pages),
        Request::Fork { number_at: Some(at) } => bring_in(shared, managed, page_of(at)),
        Request::Fork { number_at: None } => {}
        Request::PageOut { .. }
        | Request::Protect { .. }
        | Request::Fetch { .. }
        | Request::Opened => unreachable!("others do these"),
    }
}

/// Errors that mean that a helper does not answer.
const GONE: [io::ErrorKind; 3] =
    [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut];

/// A space has a helper now.
fn now_attached(shared: &Arc<Shared>, managed: &Arc<Managed>, attached: Attached) {
    match Helper::new(attached).map(|helper| managed.set_helper(helper)) {
        Ok(()) if managed.was_attached.swap(true, Ordering::Relaxed) => {}
        Ok(()) => shared.counters.managed_total.add(1),
        // The helper was killed or stopped: there is another after a pause.
        Err(error) if is_gone(&error) || GONE.contains(&error.kind()) => {
            shared.end_helper(managed, &error);
        }
        Err(error) => {
            shared.books.cannot_attach(managed, error.to_string());
            shared.tracing.tell();
        }
    }
    if shared.budget.is_near() {
        close_open(shared, managed);
    }
}

/// The program is about to move or resize a range, to `len` pages.
fn about_to_move(shared: &Arc<Shared>, managed: &Arc<Managed>, pages: &Pages, len: usize) {
    managed.lock().set_moving(Some(len));
    level(shared, managed, pages);
    // The kernel moves several mappings at once only if none of them is closed, and may have moved
    // some before it finds one that is.
    let is_one = || {
        let vmas = within(managed.pid(), &bytes_of(pages)).unwrap_or_default();
        vmas.first().is_some_and(|vma| vma.range.end == pages.end * page_len())
    };
    // It fills the growth of locked memory before it reports the move, and nothing can be filled in
    // before that report.
    let is_closed = managed.lock().closed().touches(pages);
    if is_closed && (!is_one() || may_be_locked(managed.pid())) {
        give_back(shared, managed, pages, false);
    }
}

/// The program has moved a range, or failed to.
fn moved(shared: &Arc<Shared>, managed: &Arc<Managed>, from: &Pages, to: Option<Pages>) {
    let is_own = {
        let mut space = managed.lock();
        space.set_moving(None);
        space.own().touches(from)
    };
    match to {
        Some(to) if is_own => give_back(shared, managed, &to, true),
        Some(to) => level(shared, managed, &to),
        None => {}
    }
}

/// The heap ends at a page now.
fn grown(shared: &Arc<Shared>, managed: &Arc<Managed>, last: PageNo) {
    // The part that it has grown by since it was closed is a separate mapping.
    let is_closed = managed.lock().closed().around(last).is_some();
    if !is_closed
        && let Some(Mapping { pages, other: false }) = mapping_around(managed.pid(), last)
        && !shared.budget.fits(pages.len())
    {
        for part in closable(shared, managed, &pages) {
            close(shared, managed, &part, 1);
        }
    }
}

/// Brings back all pages that left a range and opens it; as the program's own if `stays`.
fn give_back(shared: &Arc<Shared>, managed: &Arc<Managed>, pages: &Pages, stays: bool) {
    // No page of it leaves from now on.
    let mut space = managed.lock();
    let own = space.own().within(pages);
    space.leave_open(pages);
    drop(space);
    let Some(access) = managed.access() else { return };
    let Some(mut space) = bring_back(shared, managed, pages) else { return };
    unregister(managed, access, pages);
    space.open(pages);
    if !stays {
        space.take_back(pages);
        own.iter().for_each(|part| space.leave_open(part));
    }
    drop(space);
    answer_faults(shared, managed);
}

/// Brings back all pages that left a range, of which no more leave. Returns the space, locked, with
/// messages still to be answered; `None` if it is gone.
fn bring_back<'a>(
    shared: &Arc<Shared>,
    managed: &'a Arc<Managed>,
    pages: &Pages,
) -> Option<Held<'a>> {
    let mut from = pages.start;
    while !managed.is_dead() && !shared.is_ending() {
        let mut space = managed.lock();
        drain(shared, managed, &mut space);
        let away = |pages: &Pages| {
            let mut known = space.table().known(pages);
            known.find(|(_, state)| state.is_away())
        };
        // Usually after the last page; but an earlier page may have been on its way out then.
        let away = away(&(from..pages.end)).or_else(|| away(pages));
        let Some((page, _)) = away else { return Some(space) };
        drop(space);
        answer_faults(shared, managed);
        from = page;
        bring_in(shared, managed, page);
    }
    None
}

/// Unregisters a range, including parts that are not known to be closed: where a moved mapping has
/// grown.
fn unregister(managed: &Managed, access: &Access, pages: &Pages) {
    if access.unregister(pages).is_ok() {
        return;
    }
    // Part of it is another kind of memory, or the program's own.
    for vma in within(managed.pid(), &bytes_of(pages)).unwrap_or_default() {
        // It fails where nothing is mapped any longer.
        let _ = access.unregister(&pages_of(&vma.range));
    }
}

/// Makes a range closed as a whole if any of it is.
fn level(shared: &Arc<Shared>, managed: &Arc<Managed>, pages: &Pages) {
    let Some(access) = managed.access() else { return };
    while !managed.is_dead() {
        let rest = enter(shared, managed, |space| {
            // The call for which this is done fails if there are holes.
            let touches = space.closed().touches(pages);
            touches.then(|| close_rest(managed, access, space, pages, 1))
        });
        if rest != Some(Err(Open::Again)) {
            return;
        }
        std::thread::sleep(RETRY);
    }
}

/// Keeps all pages from leaving until a fork is over, and brings in these pages, or all.
fn hold(shared: &Arc<Shared>, managed: &Arc<Managed>, pages: Option<Vec<usize>>) {
    let mut space = managed.lock();
    space.hold();
    flush(shared, managed.id, &mut space);
    drop(space);
    match pages {
        Some(pages) => {
            for at in pages {
                bring_in(shared, managed, page_of(at));
            }
        }
        None => {
            drop(bring_back(shared, managed, &(0..PageNo::MAX)));
            answer_faults(shared, managed);
        }
    }
}

/// The child of a held fork gets its parent's pages, as far as the kernel has not copied them.
fn born(shared: &Arc<Shared>, parent: &Arc<Managed>, child: &Arc<Managed>, mut attached: Attached) {
    let mut mapped = Ranges::default();
    match mappings(child.pid()) {
        Ok(mappings) => mappings.into_iter().for_each(|mapping| mapped.insert(mapping.pages)),
        Err(error) if !is_gone(&error) => {
            shared.end(format!("the mappings of a child of fork cannot be read: {error}"));
        }
        Err(_) => {}
    }
    let mut space = parent.lock();
    drain(shared, parent, &mut space);
    let mut copy = copy_of(shared, &space);
    // References of the child, like those of its table.
    let arrivals = space.arrivals().to_vec();
    {
        let mut keys = shared.cold.stock.keys();
        arrivals.iter().for_each(|&(_, key)| keys.share(key));
    }
    space.release();
    drop(space);
    answer_faults(shared, parent);
    copy.retain(&mapped);
    set_access(child, &mut attached);
    if let Err(error) = Helper::new(attached).map(|helper| child.set_helper(helper)) {
        return shared.end(format!("a child of fork cannot be managed: {error}"));
    }
    let access = child.access().expect("set just now");
    copy.set_helpers(child.lock().helpers().clone());
    let closed = copy.closed().clone();
    for part in closed.iter() {
        if let Err(error) = access.register(child.pid(), &part) {
            if !is_gone(&error) {
                shared.end(format!("a child of fork cannot be managed: {error}"));
            }
            copy.forget(&part);
        }
    }
    for (page, key) in arrivals {
        let is_there = |page: PageNo| {
            access.present(child.pid(), &(page..page + 1)).is_ok_and(|found| !found.is_empty())
        };
        if copy.closed().around(page).is_some() && !is_there(page) {
            copy.arrive_stored(page, key);
        } else {
            copy.give_up(key);
        }
    }
    *child.lock() = copy;
    child.was_attached.store(true, Ordering::Relaxed);
    shared.counters.managed_total.add(1);
    shared.books.polls.add(child);
}

/// Brings in a page that a call of a held thread points to, whoever serves it; returns whether the
/// thread is released when the page is there.
pub(crate) fn fetch(shared: &Arc<Shared>, address: usize, ticket: Ticket) -> bool {
    let shared = Arc::clone(shared);
    // What it waits for, and for how long, is unknown. There are as many of these as threads that
    // stop at the same time.
    let fetch = move || {
        // If the page cannot be read, the thread that asked finds that out again.
        let _ = remote::read(ticket.thread, address, &mut [0]);
        shared.tracing.go_on(ticket);
    };
    std::thread::Builder::new().name("fetch".to_owned()).spawn(fetch).is_ok()
}

/// Gives a space what the tracer made, as far as that requires no waiting.
pub(crate) fn set_access(managed: &Managed, attached: &mut Attached) {
    let pid = attached.pid;
    let (spare, all) = (pages_of(&attached.staging).end - 1, pages_of(&attached.all));
    // Before its first page is registered, after which any thread can fault on it.
    managed.lock().set_helpers(Helpers { all, spare });
    // Before any page can leave.
    let known = argument_pages(pid);
    if !known.is_empty() {
        lock(&managed.kept).set_always(known);
    }
    if let Some(uffd) = attached.uffd.take() {
        managed.set_access(Access::new(uffd));
    }
    if let Some(access) = managed.access() {
        // As early as possible; code that needs it reports why it failed.
        let _ = access.pagemap(pid);
    }
    managed.may_protect.store(attached.may_protect, Ordering::Relaxed);
    managed.leaves_late.store(attached.may_protect, Ordering::Relaxed);
    managed.set_pid(pid);
}

/// Releases all that is kept for a space that is gone.
fn bury(shared: &Shared, managed: &Arc<Managed>) {
    managed.die();
    shared.books.polls.remove(managed);
    // The last actions of its threads may not have been reported.
    managed.lock().forget_all();
    managed.seen(0);
    managed.set_credit(0);
    *lock(&managed.sharing) = None;
    lock(&shared.cold.starving).gone(managed.id);
    shared.evictor.call();
}

/// How long the watcher may leave a fault that has to wait for a change.
pub(crate) const RETRY: Duration = Duration::from_micros(100);
