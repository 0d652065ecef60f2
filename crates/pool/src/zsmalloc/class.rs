//! A size class at work in one heap: its zspages in lists by fullness.

use crate::memory::list::List;
use crate::options::zsmalloc::Grouping;
use crate::zsmalloc::fullness::{GROUPS_MAX, Groups};
use crate::zsmalloc::geometry::ClassSpec;
use crate::zsmalloc::zspage::{UNLISTED, Zspages};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct SizeClass {
    pub(crate) spec: ClassSpec,
    groups: Groups,
    lists: [List; GROUPS_MAX],
    /// Zspages of the class in this heap, listed or not.
    pub(crate) zspages: u64,
    /// Their committed pages.
    pub(crate) pages: u64,
    /// Their taken objects.
    pub(crate) in_use: u64,
    /// Listed zspages that have room.
    pub(crate) partial: u32,
}

impl SizeClass {
    pub(crate) fn new(spec: ClassSpec, grouping: Grouping) -> Self {
        let groups = Groups::new(grouping, spec.objects);
        let lists = [List::EMPTY; GROUPS_MAX];
        Self { spec, groups, lists, zspages: 0, pages: 0, in_use: 0, partial: 0 }
    }

    #[inline]
    fn group_of(&self, zspages: &Zspages, index: u32) -> u8 {
        self.groups.of(zspages.records.at(index).in_use())
    }

    #[inline]
    fn is_partial(&self, group: u8) -> bool {
        group < self.groups.grouping.full()
    }

    /// Returns the first zspage of the fullest group that has room.
    #[inline]
    pub(crate) fn fullest_with_room(&self) -> Option<u32> {
        let partial = &self.lists[..usize::from(self.groups.grouping.full())];
        partial.iter().rev().find_map(List::first)
    }

    /// Returns the first zspage of the emptiest group that has objects and room.
    pub(crate) fn emptiest(&self) -> Option<u32> {
        self.lists[1..usize::from(self.groups.grouping.full())].iter().find_map(List::first)
    }

    /// Puts an unlisted zspage on the list of its group. A huge one stays unlisted: it is never
    /// searched for.
    #[inline]
    pub(crate) fn list(&mut self, zspages: &Zspages, index: u32) {
        let record = zspages.records.at(index);
        debug_assert_eq!(record.group.get(), UNLISTED);
        if self.spec.is_huge() {
            return;
        }
        let group = self.group_of(zspages, index);
        let in_use = |index: u32| zspages.records.at(index).in_use();
        let list = &mut self.lists[usize::from(group)];
        match list.first() {
            Some(head)
                if self.groups.grouping == Grouping::Four && in_use(head) > in_use(index) =>
            {
                list.insert_after(&mut &*zspages.records, head, index);
            }
            _ => list.push_front(&mut &*zspages.records, index),
        }
        record.group.set(group);
        self.partial += u32::from(self.is_partial(group));
    }

    /// Takes a zspage off its list, if it is on one.
    #[inline]
    pub(crate) fn unlist(&mut self, zspages: &Zspages, index: u32) {
        let record = zspages.records.at(index);
        let group = record.group.get();
        record.group.set(UNLISTED);
        if group != UNLISTED {
            self.lists[usize::from(group)].remove(&mut &*zspages.records, index);
            self.partial -= u32::from(self.is_partial(group));
        }
    }

    /// Moves a listed zspage to the list of its group, if that has changed.
    #[inline]
    pub(crate) fn relist(&mut self, zspages: &Zspages, index: u32) {
        if self.group_of(zspages, index) != zspages.records.at(index).group.get() {
            self.unlist(zspages, index);
            self.list(zspages, index);
        }
    }

    /// Returns whether there is a zspage with room besides the one to allocate from.
    #[inline]
    pub(crate) fn can_spare(&self) -> bool {
        self.partial > 1
    }

    /// Zspages that moving objects together would empty: whole zspages' worth of free objects.
    pub(crate) fn surplus_zspages(&self) -> u64 {
        self.zspages - self.in_use.div_ceil(self.spec.objects.into())
    }

    /// Adds the counts of another heap's share of the same class.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        self.zspages += other.zspages;
        self.pages += other.pages;
        self.in_use += other.in_use;
    }

    /// Pages that moving objects together would free: exact if all pages of all zspages are
    /// committed, otherwise by their average.
    pub(crate) fn freeable_pages(&self) -> u64 {
        (self.surplus_zspages() * self.pages).checked_div(self.zspages).unwrap_or(0)
    }

    /// Walks the lists; returns all listed zspages.
    ///
    /// # Panics
    /// If one is on a list that is not its group's.
    pub(crate) fn check(&self, zspages: &Zspages) -> Vec<u32> {
        let limit = self.zspages as usize;
        let (mut listed, mut partial) = (Vec::new(), 0);
        for (group, list) in self.lists.iter().enumerate() {
            for index in list.walk(&&*zspages.records, limit) {
                let noted = zspages.records.at(index).group.get();
                assert_eq!(usize::from(self.group_of(zspages, index)), group, "fullness group");
                assert_eq!(usize::from(noted), group, "noted group");
                listed.push(index);
                partial += u32::from(self.is_partial(noted));
            }
        }
        assert_eq!(partial, self.partial, "zspages with room");
        listed
    }
}
