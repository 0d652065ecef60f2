//! The course that every holder goes through: pages come in random order, half of them go, they
//! come back, and then each is replaced many times. Every byte is compared on the way.

use std::time::Instant;

use zfold_compare::latency::Latency;
use zfold_compare::rng::{SplitMix64, Xorshift64};
use zfold_store::backing::AlignedBuffer;

use super::holder::{Held, Holder};
use super::pages::{NAME, Pages};
use crate::experiment::content::{PAGE_BYTES, verify};
use crate::experiment::harness::turns::Fault;

/// Looks for holes to close while each page is replaced once on average.
const LOOKS: usize = 16;

/// When the memory of a holder is read, and the name of that moment.
pub(super) const MOMENTS: [&str; 5] =
    ["filled", "half freed", "half freed, compacted", "churned", "churned, compacted"];

/// The work.
#[derive(Debug)]
pub(super) struct Course<'a> {
    pub(super) pages: &'a Pages,
    /// Keys, each of which gets a page; at least one.
    pub(super) keys: usize,
    /// How often each page is replaced on average.
    pub(super) replaced: usize,
    pub(super) seed: u64,
}

/// The result.
#[derive(Debug)]
pub(super) struct Done {
    /// At each of [`MOMENTS`]: how many pages there were, and the memory held.
    pub(super) held: Vec<(usize, Held)>,
    /// Of single calls, while pages are replaced.
    pub(super) stores: Latency,
    pub(super) loads: Latency,
}

impl Course<'_> {
    /// Leads a holder through it.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the holder fails or a byte comes back wrong.
    pub(super) fn run(&self, holder: &dyn Holder) -> Result<Done, Fault> {
        let mut order = Xorshift64::new(self.seed);
        let mut run = Run {
            course: self,
            holder,
            held: vec![None; self.keys],
            page: AlignedBuffer::new(PAGE_BYTES),
            done: Done { held: Vec::new(), stores: Latency::new(), loads: Latency::new() },
        };
        // Of all places in memory, also if there are fewer keys.
        let mut contents = order.permutation(self.keys.max(self.pages.len()));
        contents.truncate(self.keys);
        // Of two orders, so that what goes together did not come together.
        let (all, mut half) = (order.permutation(self.keys), order.permutation(self.keys));
        half.truncate(self.keys / 2);
        run.fill(&all, &contents)?;
        holder.rest()?;
        run.look()?;
        half.iter().try_for_each(|&key| run.free(key))?;
        run.look()?;
        holder.compact()?;
        run.look()?;
        run.check_all()?;
        run.fill(&half, &contents)?;
        holder.rest()?;
        run.churn(&contents, &mut SplitMix64::new(self.seed))?;
        holder.rest()?;
        run.look()?;
        holder.compact()?;
        run.look()?;
        run.check_all()?;
        Ok(run.done)
    }
}

/// A holder on its way.
struct Run<'a> {
    course: &'a Course<'a>,
    holder: &'a dyn Holder,
    /// Which page each key has.
    held: Vec<Option<usize>>,
    page: AlignedBuffer,
    done: Done,
}

impl Run<'_> {
    fn write(&mut self, key: usize, content: usize) -> Result<(), Fault> {
        self.held[key] = Some(content);
        self.holder.write(key as u64, self.course.pages.page(content))
    }

    fn fill(&mut self, keys: &[usize], contents: &[usize]) -> Result<(), Fault> {
        keys.iter().try_for_each(|&key| self.write(key, contents[key]))
    }

    fn free(&mut self, key: usize) -> Result<(), Fault> {
        self.held[key] = None;
        self.holder.free(key as u64)
    }

    fn read(&mut self, key: usize) -> Result<(), Fault> {
        self.holder.read(key as u64, &mut self.page)
    }

    /// Compares the page that was read last with that of the key.
    fn check(&self, key: usize) -> Result<(), Fault> {
        let expected = match self.held[key] {
            Some(content) => self.course.pages.page(content),
            None => &[0; PAGE_BYTES],
        };
        Ok(verify(NAME, expected, &self.page, || format!("page {key}"))?)
    }

    fn check_all(&mut self) -> Result<(), Fault> {
        (0..self.held.len()).try_for_each(|key| {
            self.read(key)?;
            self.check(key)
        })
    }

    /// Replaces random pages by others of `contents`, and reads random ones.
    fn churn(&mut self, contents: &[usize], random: &mut SplitMix64) -> Result<(), Fault> {
        let keys = self.course.keys;
        let mut below = |bound: usize| random.below(bound as u64) as usize;
        for n in 0..keys * self.course.replaced {
            let (key, content) = (below(keys), contents[below(keys)]);
            let start = Instant::now();
            self.write(key, content)?;
            self.done.stores.record(start.elapsed());
            let key = below(keys);
            let start = Instant::now();
            self.read(key)?;
            self.done.loads.record(start.elapsed());
            self.check(key)?;
            if n % keys.div_ceil(LOOKS) == 0 {
                self.holder.close_holes();
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Fault> {
        let pages = self.held.iter().flatten().count();
        self.done.held.push((pages, self.holder.held()?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Error;

    /// Keeps pages as they are, but gives those of one key back with a wrong byte.
    #[derive(Default)]
    struct Plain {
        pages: RefCell<BTreeMap<u64, Vec<u8>>>,
        told: RefCell<Vec<&'static str>>,
        wrong: Option<u64>,
    }

    impl Holder for Plain {
        fn write(&self, key: u64, page: &[u8]) -> Result<(), Fault> {
            self.pages.borrow_mut().insert(key, page.to_owned());
            Ok(())
        }

        fn read(&self, key: u64, page: &mut [u8]) -> Result<(), Fault> {
            match self.pages.borrow().get(&key) {
                Some(found) => page.copy_from_slice(found),
                None => page.fill(0),
            }
            page[9] ^= u8::from(self.wrong == Some(key));
            Ok(())
        }

        fn free(&self, key: u64) -> Result<(), Fault> {
            self.pages.borrow_mut().remove(&key);
            Ok(())
        }

        fn close_holes(&self) {}

        fn rest(&self) -> Result<(), Fault> {
            self.told.borrow_mut().push("rest");
            Ok(())
        }

        fn compact(&self) -> Result<(), Fault> {
            self.told.borrow_mut().push("compact");
            Ok(())
        }

        fn held(&self) -> Result<Held, Fault> {
            let pages = self.pages.borrow().len() as u64;
            Ok(Held { bytes: pages * 3, payload_bytes: pages })
        }
    }

    fn course(pages: &Pages) -> Course<'_> {
        Course { pages, keys: 41, replaced: 2, seed: 5 }
    }

    #[test]
    fn pages_come_go_and_are_replaced_and_each_moment_is_looked_at() {
        let (pages, holder) = (Pages::of(&[]).unwrap(), Plain::default());
        let done = course(&pages).run(&holder).unwrap();
        let counts: Vec<usize> = done.held.iter().map(|(pages, _)| *pages).collect();
        assert_eq!(counts, [41, 21, 21, 41, 41]);
        assert_eq!(done.held[1].1, Held { bytes: 63, payload_bytes: 21 });
        assert_eq!((done.stores.count(), done.loads.count()), (82, 82));
        assert_eq!(holder.told.into_inner(), ["rest", "compact", "rest", "rest", "compact"]);
    }

    #[test]
    fn a_wrong_byte_ends_it() {
        let pages = Pages::of(&[]).unwrap();
        let holder = Plain { wrong: Some(7), ..Plain::default() };
        match course(&pages).run(&holder).unwrap_err() {
            Fault::Failed(Error::WrongBytes { what, .. }) => assert_eq!(what, "page 7"),
            fault => panic!("{fault:?}"),
        }
    }
}
