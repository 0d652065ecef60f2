//! Asserts heap/Y1 to heap/Y5 for a whole pool.

use std::collections::HashMap;

use crate::handle::Handle;
use crate::sync::spin::SpinGuard;
use crate::zsmalloc::cell::Place;
use crate::zsmalloc::heap::Heap;
use crate::zsmalloc::locking::Shared;
use crate::zsmalloc::zspage::{UNLISTED, Zspage};

/// Asserts heap/Y1 to heap/Y5. Other calls may be under way, but none that has a heap locked;
/// objects that they have taken, hold or move are accounted for.
pub(crate) fn check(shared: &Shared, heaps: &[SpinGuard<'_, Heap>]) {
    let tables = &shared.tables;
    let named = check_cells(shared);
    let listed: usize = heaps.iter().map(|heap| heap.check(tables).len()).sum();
    let mut sums: HashMap<(usize, usize), (u64, u64, u64)> = HashMap::new();
    let (mut unlisted, mut zspages) = (0, 0);
    for (index, record) in owned_zspages(shared, heaps) {
        let spec = &tables.geometry.classes()[record.class()];
        tables.zspages.check_free(index, spec);
        let cells = named.get(&index).copied().unwrap_or(0);
        // An object on the move has two places and one cell.
        let fits = record.in_use() == cells || record.is_isolated();
        assert!(fits, "heap/Y1: zspage {index}: {} taken, {cells} cells", record.in_use());
        assert!(record.in_use() > 0 || record.is_isolated(), "heap/Y2: zspage {index} is empty");
        let committed = u64::from(record.run().committed);
        let sum = sums.entry((record.owner.get().into(), record.class())).or_default();
        *sum = (sum.0 + 1, sum.1 + u64::from(record.in_use()), sum.2 + committed);
        let is_unlisted = record.group.get() == UNLISTED;
        unlisted += usize::from(is_unlisted);
        assert!(!is_unlisted || spec.is_huge() || record.is_isolated(), "heap/Y2: zspage {index}");
        zspages += 1;
    }
    assert_eq!(listed + unlisted, zspages, "heap/Y2: listed zspages");
    for (id, heap) in heaps.iter().enumerate() {
        for (at, class) in heap.classes() {
            let sum = sums.get(&(id, at)).copied().unwrap_or_default();
            let counts = (class.zspages, class.in_use, class.pages);
            assert_eq!(counts, sum, "heap/Y4: class {at} of heap {id}");
        }
    }
    let pages: u64 = sums.values().map(|sum| sum.2).sum();
    assert!(pages <= tables.check().0, "heap/Y4: pages");
}

/// Returns the zspages that heaps own: all but those that are being made or released now.
fn owned_zspages<'a>(shared: &'a Shared, heaps: &[SpinGuard<'_, Heap>]) -> Vec<(u32, &'a Zspage)> {
    let records = &shared.tables.zspages.records;
    let in_use = records.indices().map(|index| (index, records.at(index)));
    let (owned, others): (Vec<_>, Vec<_>) =
        in_use.partition(|(_, record)| record.in_use() > 0 || record.is_isolated());
    let counted: u64 = heaps.iter().flat_map(|heap| heap.classes()).map(|c| c.1.zspages).sum();
    assert_eq!(owned.len() as u64, counted, "heap/Y4: zspages; {} without objects", others.len());
    owned
}

/// Asserts heap/Y1 for live cells; returns how many cells name each zspage.
fn check_cells(shared: &Shared) -> HashMap<u32, u32> {
    let tables = &shared.tables;
    let mut named = HashMap::new();
    for index in tables.cells.indices() {
        let cell = tables.cells.at(index);
        let Place { class, zspage, object } = cell.place();
        *named.entry(zspage).or_insert(0) += 1;
        let record = tables.zspages.records.at(zspage);
        assert_eq!(record.class(), class, "heap/Y1: class of cell {index}");
        if let Some(serial) = cell.live_serial()
            && cell.place() == (Place { class, zspage, object })
        {
            let spec = &tables.geometry.classes()[class];
            let header = tables.zspages.handle_hint(zspage, spec, object);
            let handle = Handle::new(index, serial);
            let gone = cell.live_serial() != Some(serial);
            assert!(header == Some(handle) || gone, "heap/Y1: {header:?} for {handle:?}");
        }
    }
    named
}
