//! Any bytes into every codec's decompressor: it returns, stays inside the page, and the context
//! works afterwards. Half of the inputs are taken as they are; the others are a page that was
//! compressed and then damaged, which comes further into a decoder.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zfold_fuzz::decode_between_guards;
use zfold_store::{CodecKind, CodecSpec};

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, damage, at_low, at_high], bytes)) = data.split_first_chunk() else {
        return;
    };
    let kinds = CodecKind::ALL;
    let page_len = [4096, 16384, 100, 1][choice as usize / kinds.len() % 4];
    let spec = CodecSpec::from(kinds[choice as usize % kinds.len()]);
    let mut codec = spec.context(page_len).expect("a page length in range");

    let mut page: Vec<u8> = bytes.iter().copied().cycle().take(page_len).collect();
    page.resize(page_len, 0);
    let mut packed = vec![0; page_len + page_len / 8 + 256];
    let len = codec.compress(&page, &mut packed).expect("room for any page");
    packed.truncate(len);

    let mut input = bytes.to_vec();
    if choice >= 128 {
        input.clone_from(&packed);
        let at = usize::from(u16::from_le_bytes([at_low, at_high])) % len;
        input[at] ^= damage;
        if damage & 1 != 0 {
            input.truncate(at);
        }
    }
    let _ = decode_between_guards(&mut *codec, &input, page_len);

    let mut back = vec![0; page_len];
    codec.decompress(&packed, &mut back).expect("its own output decodes");
    assert!(back == page, "{spec} decoded its own output to another page");
});
