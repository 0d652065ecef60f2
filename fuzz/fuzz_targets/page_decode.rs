//! Any bytes into both decoders of the page codec: they stay inside the page and give the same
//! page, or none. Half of the inputs are blocks as they are; the others are a page, compressed at
//! either level and then damaged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zfold_fuzz::decode_between_guards;
use zfold_store::codec::reference_decode;
use zfold_store::{Codec, CodecSpec};

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, damage, at_low, at_high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let page_len = [4096, 256, 16384, 65536, 1000, 31][choice as usize % 6];
    let level = if choice & 64 == 0 { "page" } else { "page:deep" };
    let spec: CodecSpec = level.parse().expect("a codec");
    let mut codec = spec.context(page_len).expect("a page length in range");
    if choice < 128 {
        decode_by_both(&mut *codec, bytes, page_len);
        return;
    }
    // The page is the input, again and again; every time another byte of it is different.
    let mut page: Vec<u8> = bytes.iter().copied().cycle().take(page_len).collect();
    page.resize(page_len, 0);
    for (round, part) in page.chunks_mut(bytes.len().max(1)).enumerate() {
        let at = round * 7 % part.len();
        part[at] = part[at].wrapping_add(round as u8);
    }
    let mut block = vec![0; page_len + page_len / 8 + 256];
    let len = codec.compress(&page, &mut block).expect("room for any page");
    block.truncate(len);
    assert_eq!(decode_by_both(&mut *codec, &block, page_len), Some(page));

    let at = usize::from(u16::from_le_bytes([at_low, at_high])) % len;
    block[at] ^= damage;
    decode_by_both(&mut *codec, &block, page_len);
    block.truncate(at);
    decode_by_both(&mut *codec, &block, page_len);
});

/// Returns what both decoders make of `block`.
fn decode_by_both(codec: &mut dyn Codec, block: &[u8], page_len: usize) -> Option<Vec<u8>> {
    // An allocation that ends where the block does.
    let block: Box<[u8]> = block.into();
    let (result, page) = decode_between_guards(codec, &block, page_len);
    let mut plainly = vec![0; page_len];
    assert_eq!(reference_decode(&block, &mut plainly), result, "one decoder has an error");
    result.ok()?;
    assert!(page == plainly, "the decoders differ");
    Some(plainly)
}
