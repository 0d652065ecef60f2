//! Size classes: which object goes into objects of which size, and how many pages a zspage of a
//! class takes.
//!
//! There are 255 slots, 1/256 of a page apart (16 bytes on 4 KiB pages) from 32 bytes up to a
//! page. A slot's zspages take as many pages as waste least, by one of two rules; neighbouring
//! slots whose zspages come out alike (same pages, same objects) are one class, of the largest
//! of their sizes. Rules and figures are those of Linux's zsmalloc: [`Chooser::UsedPercent`] up
//! to about 6.3, [`Chooser::LeastWaste`] since; the published class tables are reproduced by
//! this module's tests.
//!
//! An object carries a header of 8 bytes, except in the *huge* class, where one object fills one
//! page and the zspage's record stands for the header.

use crate::options::zsmalloc::Chooser;
use crate::units::PageSize;

/// Bytes in front of the payload of every object that is not huge.
pub(crate) const HEADER_BYTES: usize = 8;

/// Size of the smallest class in bytes.
const MIN_SIZE: usize = 32;

impl Chooser {
    /// Returns the pages, at most `chain`, of a zspage of objects of `size` bytes.
    fn pages(self, size: usize, page: usize, chain: usize) -> usize {
        match self {
            // The first of the best: max_by_key returns the last one, so compare in reverse.
            Self::UsedPercent => (1..=chain)
                .rev()
                .max_by_key(|pages| {
                    let bytes = pages * page;
                    (bytes - bytes % size) * 100 / bytes
                })
                .unwrap_or(1),
            Self::LeastWaste if size.is_power_of_two() => 1,
            Self::LeastWaste => (1..=chain).min_by_key(|pages| pages * page % size).unwrap_or(1),
        }
    }
}

/// One size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSpec {
    /// Slot of the class: that of its size, the largest slot merged into it.
    pub slot: u32,
    /// Bytes of an object, its header included.
    pub size: u32,
    /// Pages of a zspage.
    pub pages: u32,
    /// Objects of a zspage.
    pub objects: u32,
}

impl ClassSpec {
    /// Returns whether one object fills one page.
    #[must_use]
    pub fn is_huge(&self) -> bool {
        self.pages == 1 && self.objects == 1
    }
}

/// The size classes of a pool. See the module documentation.
///
/// # Examples
/// ```
/// use zfold_pool::{Chooser, Geometry, PageSize};
///
/// let geometry = Geometry::new(PageSize::KIB4, 8, Chooser::LeastWaste);
/// assert_eq!(geometry.classes().len(), 119);
/// ```
#[derive(Clone, Debug)]
pub struct Geometry {
    classes: Vec<ClassSpec>,
    /// Position in `classes` by slot.
    by_slot: Vec<u8>,
    step: usize,
}

impl Geometry {
    /// Returns the classes for pages of `page_size` and zspages of at most `chain` pages,
    /// ordered by size.
    ///
    /// # Panics
    /// If `chain` is 0.
    #[must_use]
    pub fn new(page_size: PageSize, chain: u32, chooser: Chooser) -> Self {
        assert!(chain > 0, "a zspage has at least one page");
        let page = page_size.bytes();
        let step = page >> 8;
        let slots = (page - MIN_SIZE).div_ceil(step) + 1;
        let spec = |slot: usize| {
            let size = (MIN_SIZE + slot * step).min(page);
            let pages = chooser.pages(size, page, chain as usize);
            let [slot, size, pages, objects] =
                [slot, size, pages, pages * page / size].map(|n| n as u32);
            ClassSpec { slot, size, pages, objects }
        };
        let alike = |a: &ClassSpec, b: &ClassSpec| (a.pages, a.objects) == (b.pages, b.objects);
        let specs: Vec<_> = (0..slots).map(spec).collect();
        let groups = specs.chunk_by(alike);
        let classes = groups.clone().map(|group| group[group.len() - 1]).collect();
        let by_slot = groups.enumerate().flat_map(|(at, group)| vec![at as u8; group.len()]);
        Self { classes, by_slot: by_slot.collect(), step }
    }

    /// Returns all classes, smallest first.
    #[must_use]
    pub fn classes(&self) -> &[ClassSpec] {
        &self.classes
    }

    /// Returns the position of the class that an object of `len` payload bytes goes into; `len` is
    /// at most a page.
    #[inline]
    pub(crate) fn index_of(&self, len: usize) -> usize {
        // The huge class is last and clamps: a page-sized object has no header there.
        let slot = (len + HEADER_BYTES).saturating_sub(MIN_SIZE).div_ceil(self.step);
        self.by_slot[slot.min(self.by_slot.len() - 1)].into()
    }

    /// Returns the least payload length that lies in the huge class and wastes the rest of its
    /// page: zram stores pages raw that compress to this or more. Belongs to this geometry (in
    /// the kernel the first pool of all decides).
    ///
    /// The kernel computes it at the largest slot that is neither of one page nor of one object
    /// a zspage.
    pub(crate) fn huge_class_size(&self) -> u32 {
        let shares = |class: &&ClassSpec| class.pages != 1 && class.objects != 1;
        self.classes.iter().rfind(shares).map_or(0, |class| class.size - HEADER_BYTES as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(chain: u32, chooser: Chooser) -> Geometry {
        Geometry::new(PageSize::KIB4, chain, chooser)
    }

    /// Documentation/mm/zsmalloc.rst (Linux 6.4) for the old chooser; for the new one the same
    /// computation, published nowhere (the document was not updated).
    #[test]
    fn class_counts_equal_the_published_ones() {
        let count = |chooser| move |chain| geometry(chain, chooser).classes.len();
        let old: Vec<_> = (4..=16).map(count(Chooser::UsedPercent)).collect();
        assert_eq!(old, [69, 86, 93, 112, 123, 140, 143, 159, 164, 180, 183, 188, 191]);
        let new: Vec<_> = (4..=16).map(count(Chooser::LeastWaste)).collect();
        assert_eq!(new, [69, 86, 94, 110, 119, 136, 141, 153, 159, 173, 179, 186, 192]);
    }

    /// The watermark of the kernel's documentation is the size of the largest class that is not
    /// huge.
    #[test]
    fn watermarks_and_huge_class_sizes_equal_the_published_ones() {
        let expected =
            [(4, 3264), (5, 3408), (6, 3504), (8, 3632), (10, 3712), (12, 3776), (16, 3840)];
        for (chain, watermark) in expected {
            for chooser in Chooser::ALL {
                let geometry = geometry(chain, chooser);
                let largest = geometry.classes.iter().rfind(|class| !class.is_huge());
                assert_eq!(largest.map(|class| class.size), Some(watermark));
                assert_eq!(geometry.huge_class_size(), watermark - 7);
            }
        }
    }

    #[test]
    fn chain_4_classes_equal_the_kernels() {
        let classes = geometry(4, Chooser::LeastWaste).classes;
        for (slot, size, pages, objects) in [
            (0, 32, 1, 128),
            (1, 48, 3, 256),
            (2, 64, 1, 64),
            (3, 80, 1, 51),
            (4, 96, 3, 128),
            (5, 112, 2, 73),
            (94, 1536, 3, 8),
            (100, 1632, 2, 5),
            (107, 1744, 3, 7),
            (111, 1808, 4, 9),
            (126, 2048, 1, 2),
            (144, 2336, 4, 7),
            (151, 2448, 3, 5),
            (168, 2720, 2, 3),
            (190, 3072, 3, 4),
            (202, 3264, 4, 5),
            (254, 4096, 1, 1),
        ] {
            assert!(classes.contains(&ClassSpec { slot, size, pages, objects }), "size {size}");
        }
    }

    #[test]
    fn a_zspage_of_1568_bytes_wastes_what_the_kernels_document_says() {
        let waste: Vec<_> = (1..=5).map(|pages| pages * 4096 % 1568).collect();
        assert_eq!(waste, [960, 352, 1312, 704, 96]);
        assert_eq!(Chooser::LeastWaste.pages(1568, 4096, 5), 5);
        assert_eq!(Chooser::LeastWaste.pages(1568, 4096, 4), 2);
    }

    /// A kernel bug to avoid: looking a class up with the bare length instead of that plus the
    /// header.
    #[test]
    fn every_length_fits_its_class_and_no_smaller_one() {
        let payload_max =
            |class: ClassSpec| class.size as usize - if class.is_huge() { 0 } else { HEADER_BYTES };
        for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
            for chain in [4, 8, 16] {
                let geometry = Geometry::new(page_size, chain, Chooser::LeastWaste);
                for len in 1..=page_size.bytes() {
                    let at = geometry.index_of(len);
                    assert!(len <= payload_max(geometry.classes[at]), "{len} of {page_size}");
                    let below = at.checked_sub(1).map(|below| geometry.classes[below]);
                    assert!(below.is_none_or(|class| payload_max(class) < len));
                }
            }
        }
    }

    /// Another: loops that visit slots instead of classes count merged ones twice.
    #[test]
    fn merged_slots_share_one_class_of_the_largest_size() {
        let geometry = geometry(4, Chooser::LeastWaste);
        assert_eq!(geometry.by_slot.len(), 255);
        assert_eq!(geometry.index_of(3265 - 8 + 1), geometry.index_of(4096));
        for pair in geometry.classes.windows(2) {
            assert!(pair[0].size < pair[1].size);
            assert_ne!((pair[0].pages, pair[0].objects), (pair[1].pages, pair[1].objects));
        }
    }

    #[test]
    fn objects_per_zspage_fit_the_index_of_a_cell() {
        for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
            for (chain, chooser) in [(4, Chooser::UsedPercent), (16, Chooser::LeastWaste)] {
                let geometry = Geometry::new(page_size, chain, chooser);
                assert!(geometry.classes.iter().all(|class| class.objects <= 4096));
                assert!(geometry.classes.len() <= 256);
            }
        }
    }
}
