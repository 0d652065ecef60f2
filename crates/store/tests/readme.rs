//! The Rust that the README shows compiles and does what it says.

use std::error::Error;

#[test]
fn what_the_readme_shows_works() -> Result<(), Box<dyn Error>> {
    let html = b"<p>a page of a server".repeat(100);
    let mut page = [7; 4096];
    {
        use zfold_store::{Cache, CacheOptions, CodecKind, Store, StoreOptions};

        // Values of any length by key; the least recently used leave under the limit.
        let cache = Cache::open(&CacheOptions::new(256 << 20))?;
        cache.insert(b"/index.html", &html)?;
        let value = cache.get(b"/index.html")?;

        // Pages by number, as zram keeps them.
        let store = Store::open(&StoreOptions::new(1 << 20, CodecKind::Lz4.into()))?;
        store.store(7, &page)?; // compressed, under key 7
        store.load(7, &mut page)?; // decompressed
        store.invalidate(7); // gone, and its memory with it

        assert_eq!(value.as_deref(), Some(&*html));
        assert_eq!(page, [7; 4096]);
    }
    Ok(())
}

#[test]
fn it_is_what_the_readme_shows() {
    let words =
        |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let readme = include_str!("../../../README.md");
    let shown = readme.split("```").find_map(|block| block.strip_prefix("rust\n"));
    let shown = words(shown.expect("a block of Rust"));
    assert!(words(include_str!("readme.rs")).contains(&shown), "another: {shown}");
}
