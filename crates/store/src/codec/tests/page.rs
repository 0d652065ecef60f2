//! Tests of the page codec beyond what every codec must do: that its two decoders agree, that no
//! block makes them leave the page, that edges of the format round-trip, and how small pages are.

use proptest::prelude::*;

use super::*;
use crate::codec::reference_decode;

fn context(level: &str, page_len: usize) -> Box<dyn Codec> {
    level.parse::<CodecSpec>().unwrap().context(page_len).unwrap()
}

fn compressed(codec: &mut dyn Codec, page: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 2 * page.len() + 64];
    let len = codec.compress(page, &mut block).unwrap();
    block.truncate(len);
    block
}

/// Returns what both decoders make of `block`, which is that of a page of `page_len` bytes.
fn decode_by_both(codec: &mut dyn Codec, block: &[u8], page_len: usize) -> Option<Vec<u8>> {
    // An allocation that ends where the block does.
    let block: Box<[u8]> = block.into();
    let mut page = Guarded::new(page_len);
    let result = codec.decompress(&block, page.inner());
    page.assert_intact();
    let mut plainly = vec![0; page_len];
    assert_eq!(reference_decode(&block, &mut plainly), result);
    result.ok()?;
    assert!(page.inner() == plainly, "the decoders differ");
    Some(plainly)
}

fn assert_both_read(codec: &mut dyn Codec, page: &[u8]) {
    let block = compressed(codec, page);
    assert!(decode_by_both(codec, &block, page.len()).as_deref() == Some(page));
}

/// Returns a page of records of `stride` bytes, in which some bytes change from one to the next.
fn records(random: &mut Random, len: usize, stride: usize, changes: usize) -> Vec<u8> {
    let mut record = random.bytes(stride);
    let mut page = Vec::with_capacity(len + stride);
    while page.len() < len {
        for _ in 0..changes {
            record[random.index(stride)] = random.index(256) as u8;
        }
        page.extend_from_slice(&record);
    }
    page.truncate(len);
    page
}

/// Returns a page of words of eight bytes, most of them close to one another.
fn pointers(random: &mut Random, len: usize) -> Vec<u8> {
    let base = 0x7f12_3456_0000_u64;
    let word = |random: &mut Random| match random.index(4) {
        0 => 0,
        _ => base + 8 * random.index(4096) as u64,
    };
    (0..len.div_ceil(8)).flat_map(|_| word(random).to_le_bytes()).take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_page_round_trips_through_both_decoders(
        seed in 1..u64::MAX,
        len in prop_oneof![
            Just(4096_usize), Just(16384), Just(65536), 1..70_usize, 4000..4200_usize
        ],
        stride in prop_oneof![Just(8_usize), Just(16), Just(24), 1..300_usize],
        changes in 0..6_usize,
        kind in 0..5,
        deep in any::<bool>(),
    ) {
        let mut random = Random::new(seed);
        let page = match kind {
            0 => records(&mut random, len, stride, changes),
            1 => pointers(&mut random, len),
            2 => random.bytes(len),
            3 => vec![seed as u8; len],
            // Long literals and long matches in turns.
            _ => {
                let mut page = Vec::new();
                while page.len() < len {
                    let count = random.index(700);
                    page.extend(random.bytes(count));
                    page.extend(vec![seed as u8; random.index(700)]);
                }
                page.truncate(len);
                page
            }
        };
        let mut codec = context(if deep { "page:deep" } else { "page" }, len);
        assert_both_read(&mut *codec, &page);
    }
}

#[test]
fn both_decoders_read_every_capture() {
    for level in ["page", "page:deep"] {
        for page_len in PAGE_LENS {
            let mut codec = context(level, page_len);
            for page in sample(page_len).step_by(3) {
                assert_both_read(&mut *codec, page);
            }
        }
    }
}

#[test]
fn literals_and_matches_of_every_length_round_trip() {
    let noise = noise(21, 1024);
    for level in ["page", "page:deep"] {
        let mut codec = context(level, 4096);
        for len in (1..40).chain(250..300).chain(510..520) {
            // Literals, a match of `len`, as many literals, and the match once more.
            let mut page = noise[..600].to_vec();
            page.extend_from_slice(&noise[8..8 + len]);
            page.extend_from_slice(&noise[600..][..len.min(400)]);
            page.extend_from_slice(&noise[8..8 + len]);
            assert_both_read(&mut *codec, &page);
            page.resize(4096, 7);
            assert_both_read(&mut *codec, &page);
        }
    }
}

#[test]
fn matches_at_every_distance_round_trip() {
    let noise = noise(22, 4096);
    for level in ["page", "page:deep"] {
        let mut codec = context(level, 4096);
        for distance in (1..130).chain([1024, 2040, 2047, 2048, 2049, 2056, 4000]) {
            let mut page = noise[..distance].to_vec();
            while page.len() < 4096 {
                page.push(page[page.len() - distance]);
            }
            let len = compressed(&mut *codec, &page).len();
            assert!(level == "page" || len <= distance + 64, "{len} bytes for {distance}");
            assert_both_read(&mut *codec, &page);
        }
    }
}

#[test]
fn offsets_reach_back_over_64_kib() {
    let noise = noise(23, 65536 - 100);
    let page = [&noise[..], &noise[..100]].concat();
    for level in ["page", "page:deep"] {
        let mut codec = context(level, 65536);
        let len = compressed(&mut *codec, &page).len();
        assert!(level == "page" || len < page.len() - 80, "{len} bytes");
        assert_both_read(&mut *codec, &page);
    }
}

/// The example of docs/design/page-format.md.
#[test]
fn block_of_the_document_is_read() {
    let block = b"\x03\x00\x3a\xa1\x10abcdefghXYZ\x01\x05";
    let page = b"abcdefghabcdefghabcdeXYhabcZ";
    let mut codec = context("page", page.len());
    assert_eq!(decode_by_both(&mut *codec, block, page.len()).as_deref(), Some(&page[..]));
}

#[test]
fn unknown_orders_are_refused() {
    let page = [1; 4096];
    for level in ["page", "page:deep"] {
        let mut codec = context(level, 4096);
        let mut block = compressed(&mut *codec, &page);
        for order in 3..16 {
            block[1] = block[1] & 0x0f | order << 4;
            assert_eq!(decode_by_both(&mut *codec, &block, 4096), None);
        }
    }
}

#[test]
fn pages_beyond_64_kib_are_refused() {
    for level in ["page", "page:deep"] {
        let mut codec = context(level, 65537);
        assert_eq!(codec.compress(&[0; 65537], &mut [0; 70000]), None);
        assert_both_read(&mut *codec, &[0; 65536]);
    }
}

#[test]
fn a_table_of_numbers_is_taken_apart() {
    let numbers: Vec<u8> = (0..512_u64).flat_map(|at| (at * at * 77).to_le_bytes()).collect();
    let mut codec = context("page:deep", 4096);
    let block = compressed(&mut *codec, &numbers);
    assert_eq!(block[1] >> 4, 2, "words of eight bytes");
    assert_both_read(&mut *codec, &numbers);
    assert!(block.len() < compressed(&mut *context("page", 4096), &numbers).len() * 3 / 4);
}

/// Returns the bytes that a codec stores of all captures.
fn stored(codec: &str, page_len: usize) -> usize {
    let mut codec = context(codec, page_len);
    let mut out = vec![0; page_len - 1];
    let pages = IMAGES.iter().flat_map(|image| image.chunks_exact(page_len).step_by(3));
    pages.map(|page| codec.compress(page, &mut out).unwrap_or(page_len)).sum()
}

#[test]
fn pages_take_a_fifth_fewer_bytes_than_with_lz4_and_deep_a_third() {
    for page_len in PAGE_LENS {
        let lz4 = stored("lz4", page_len);
        let (quick, deep) = (stored("page", page_len), stored("page:deep", page_len));
        assert!(quick * 5 <= lz4 * 4, "{page_len}: {quick} bytes, lz4 {lz4}");
        assert!(deep * 3 <= lz4 * 2, "{page_len}: {deep} bytes, lz4 {lz4}");
    }
}

#[test]
fn a_million_damaged_blocks_stay_in_bounds_and_both_decoders_agree() {
    let mut random = Random::new(24);
    let mut blocks = Vec::new();
    for level in ["page", "page:deep"] {
        for page_len in [4096, 4096, 4096, 16384, 1000] {
            let mut codec = context(level, page_len);
            for page in sample(page_len).step_by(24) {
                blocks.push((page_len, compressed(&mut *codec, page)));
            }
        }
    }
    let mut codec = context("page", 4096);
    for _ in 0..1_000_000 {
        let (page_len, block) = &blocks[random.index(blocks.len())];
        let mut damaged = block.clone();
        for _ in 0..1 + random.index(3) {
            // As often in the header and the first tokens as in all the rest.
            let end = if random.index(2) == 0 { damaged.len().min(32) } else { damaged.len() };
            damaged[random.index(end)] = random.index(256) as u8;
        }
        if random.index(4) == 0 {
            damaged.truncate(random.index(damaged.len() + 1));
        }
        decode_by_both(&mut *codec, &damaged, *page_len);
    }
}
