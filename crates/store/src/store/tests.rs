//! Tests of what only the inside of a store shows.

use super::*;
use crate::codec::CodecKind;
use crate::options::Incompressible;
use zfold_pool::{Handle, PoolOptions};

fn store(change: impl Fn(&mut StoreOptions)) -> Store {
    let pool = zfold_pool::create("test", &PoolOptions::default()).unwrap();
    let mut options = StoreOptions::new(1000, CodecKind::Lz4.into());
    change(&mut options);
    Store::new(pool, &options).unwrap()
}

fn text_page() -> Vec<u8> {
    (0..4096_u32).map(|n| (n / 50 % 251) as u8).collect()
}

fn object_handle(store: &Store, key: u64) -> Handle {
    store.slots.lock(key).entry().handle()
}

#[test]
fn bytes_that_do_not_decode_are_an_error_and_counted() {
    let store = store(|_| {});
    store.store(1, &text_page()).unwrap();
    store.pages.pool.write(object_handle(&store, 1), &[0xFF; 16]).unwrap();
    let error = store.load(1, &mut vec![0; 4096]).unwrap_err();
    assert_eq!(error, LoadError::Damaged { key: 1 });
    assert_eq!(store.stats().decompress_fail_total, 1);
    assert!(store.invalidate(1), "a damaged page can be dropped");
}

#[test]
fn the_key_header_is_in_front_of_each_object_and_is_checked() {
    let store = store(|options| options.key_header = true);
    let key = 0x123;
    let Stored::Compressed { len } = store.store(key, &text_page()).unwrap() else { panic!() };
    let handle = object_handle(&store, key);
    assert_eq!(store.pages.pool.read(handle).unwrap().len(), len + 8);
    assert_eq!(store.pages.pool.read(handle).unwrap()[..8], key.to_le_bytes());
    store.pages.pool.write(handle, &[9]).unwrap();
    assert_eq!(store.load(key, &mut vec![0; 4096]), Err(LoadError::Damaged { key }));
}

#[test]
fn pages_are_read_by_the_codec_that_was_set_when_they_were_stored() {
    let others = [CodecKind::Page, CodecKind::Zstd].map(Into::into);
    let store = store(|options| options.recompression = others.to_vec());
    for codec in 0..3 {
        store.tune(&Tunables { codec, ..store.tunables() }).unwrap();
        store.store(codec.into(), &text_page()).unwrap();
    }
    let unknown = Tunables { codec: 3, ..store.tunables() };
    assert_eq!(store.tune(&unknown), Err(OpenError::NoSuchCodec(3)));
    assert_eq!(store.tunables().codec, 2);
    let mut page = vec![0; 4096];
    for key in 0..3 {
        assert!(store.load(key, &mut page).unwrap() && page == text_page(), "codec {key}");
        assert_eq!(u64::from(store.slots.lock(key).entry().state.priority()), key);
    }
}

/// A kernel bug to avoid: how a page is read must not depend on an option that was different
/// when it was stored.
#[test]
fn a_page_is_read_as_it_was_stored_whatever_the_options_say_now() {
    let mut store = store(|_| {});
    let noise = crate::conformance::page(7, 4096);
    assert_eq!(store.store(1, &noise), Ok(Stored::Raw));
    store.store(2, &[5; 4096]).unwrap();
    store.pages.incompressible = Incompressible::Reject;
    store.tune(&Tunables { same_filled: false, ..store.tunables() }).unwrap();
    let mut page = vec![0; 4096];
    assert!(store.load(1, &mut page).unwrap() && page == noise);
    assert!(store.load(2, &mut page).unwrap() && page == [5; 4096]);
}
