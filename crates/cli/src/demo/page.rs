//! The data of the demo: pages of tables and of text, such as programs have, each with a checksum.

use std::io::Write as _;

use zfold_compare::rng::SplitMix64;

/// Length of a page.
pub(super) const PAGE: usize = 4096;

/// Where a page has its checksum.
const SUM_AT: usize = PAGE - 8;

/// Length of a record of a table.
const RECORD: usize = 64;

/// This many neighbouring pages are of one kind.
const RUN: u64 = 256;

const WORDS: [&str; 32] = [
    "connection",
    "accepted",
    "from",
    "client",
    "request",
    "GET",
    "/index.html",
    "status",
    "200",
    "cache",
    "miss",
    "for",
    "key",
    "session",
    "expired",
    "after",
    "worker",
    "finished",
    "job",
    "in",
    "ms",
    "queue",
    "length",
    "retry",
    "of",
    "upload",
    "user",
    "logged",
    "out",
    "warning",
    "slow",
    "query",
];

/// Fills the page of this number, and seals it.
pub(super) fn fill(page: &mut [u8], number: u64) {
    let mut chance = SplitMix64::new(number);
    match (number / RUN) % 2 {
        0 => table(page, number, &mut chance),
        _ => log(page, number, &mut chance),
    }
    seal(page);
}

/// Orders: number, time, customer, amount, price, state, and how it was paid.
fn table(page: &mut [u8], number: u64, chance: &mut SplitMix64) {
    let mut price = 20.0 + chance.below(100) as f64;
    for (row, record) in (0..).zip(page.chunks_exact_mut(RECORD)) {
        let id = number * 64 + row;
        price += (chance.below(21) as f64 - 10.0) / 100.0;
        let fields = [
            id,
            1_700_000_000_000 + id * 250 + chance.below(200),
            chance.below(1 << 20),
            1 + chance.below(12),
            ((price * 100.0).round() / 100.0).to_bits(),
            chance.below(4),
        ];
        for (field, bytes) in fields.iter().zip(record.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        let paid = if chance.below(3) == 0 { b"bank transfer   " } else { b"credit card     " };
        record[RECORD - 16..].copy_from_slice(paid);
    }
}

/// Lines of a log.
fn log(page: &mut [u8], number: u64, chance: &mut SplitMix64) {
    let mut rest = &mut *page;
    let mut time = number * 40;
    while !rest.is_empty() {
        time += chance.below(3);
        // A line that does not fit is cut, which is the only error.
        let _ = write!(
            rest,
            "2026-01-{:02} 12:{:02}:{:02} ",
            1 + time / 3600 % 28,
            time / 60 % 60,
            time % 60
        );
        for _ in 0..4 + chance.below(8) {
            let _ = write!(rest, "{} ", WORDS[chance.below(32) as usize]);
        }
        let _ = writeln!(rest, "{}", chance.below(100_000));
    }
}

/// Changes some fields of a page, as an update of rows does, and seals it again.
pub(super) fn update(page: &mut [u8], chance: &mut SplitMix64) {
    for _ in 0..4 {
        let at = chance.below((SUM_AT / 8) as u64) as usize * 8;
        page[at] = page[at].wrapping_add(1);
    }
    seal(page);
}

/// Returns the checksum of a page, which must be that which it was sealed with.
pub(super) fn verified(page: &[u8]) -> Option<u64> {
    let sum = sum(page);
    (page[SUM_AT..] == sum.to_le_bytes()).then_some(sum)
}

fn seal(page: &mut [u8]) {
    let sum = sum(page);
    page[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the checksum of the bytes before the checksum.
fn sum(page: &[u8]) -> u64 {
    page[..SUM_AT].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_noticed() {
        for number in [0, RUN] {
            let mut page = [0; PAGE];
            fill(&mut page, number);
            assert!(verified(&page).is_some());
            update(&mut page, &mut SplitMix64::new(7));
            assert!(verified(&page).is_some());
            page[100] ^= 1;
            assert_eq!(verified(&page), None);
        }
    }

    #[test]
    fn no_page_is_one_word_repeated() {
        for number in [0, 1, RUN, RUN + 1] {
            let mut page = [0; PAGE];
            fill(&mut page, number);
            assert!(page.chunks(8).any(|word| word != &page[..8]));
        }
    }
}
