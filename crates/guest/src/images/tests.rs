//! Images by what they read as, and by what they cost.

use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use zfold_store::CodecKind;
use zfold_testing::random::noise;

use super::*;
use crate::core::space::Image as _;

fn images(limit: Option<u64>) -> Images {
    Images::new(&images_options(CodecKind::Lz4.into(), limit)).expect("a store")
}

/// A page of text that depends on `seed`.
fn text(seed: u64) -> Vec<u8> {
    let words = (0..512_u64).map(|n| (seed.wrapping_mul(0x9e37_79b9) ^ (n / 6)).to_le_bytes());
    words.flatten().collect()
}

/// A memory file with these pages, and holes elsewhere.
fn file(pages: u64, held: &[(u64, Vec<u8>)]) -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("memory", flags).expect("a file"));
    file.set_len(pages * 4096).expect("a length");
    for (page, bytes) in held {
        file.write_all_at(bytes, page * 4096).expect("written");
    }
    file
}

fn read(images: &Images, name: &str) -> Vec<u8> {
    let image = images.claim(name).expect("an image");
    let mut bytes = vec![0; image.pages() as usize * 4096];
    for (page, bytes) in (0..).zip(bytes.chunks_mut(4096)) {
        image.load(page, bytes).expect("readable");
        assert!(!image.is_zero(page) || bytes.iter().all(|&byte| byte == 0));
    }
    bytes
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("a length").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("readable");
    bytes
}

#[test]
fn an_image_is_its_file_and_zeros_and_equal_pages_cost_nothing() {
    let images = images(None);
    let own = noise(7, PAGE);
    let held = [(1, own.clone()), (2, vec![0; 4096]), (5, own.clone()), (999, own)];
    let memory = file(1000, &held);
    let before = images.store().stats().pool.payload_bytes;
    let imported = images.import("web", &memory, None).expect("imported");
    assert_eq!((imported.pages, imported.stored_pages), (1000, 3));
    assert!(imported.read_pages < 300, "holes were read: {imported:?}");
    assert_eq!(read(&images, "web"), contents(&memory));
    let stored = images.store().stats().pool.payload_bytes - before;
    assert!(stored <= 4096, "three equal pages take {stored}");
    assert_eq!(images.list()[0].own_pages, 3);
}

/// Pitfall 6: a difference by `mincore` has pages that equal the base's, and holes where nobody
/// touched anything.
#[test]
fn a_difference_holds_what_differs_and_nothing_else() {
    let images = images(None);
    let base: Vec<_> = (0..20).map(|page| (page, text(page))).collect();
    let memory = file(64, &base);
    images.import("base", &memory, None).expect("imported");
    let changed = [
        // As it was, changed, zeros now, zeros as before, new.
        (3, text(3)),
        (4, text(400)),
        (5, vec![0; 4096]),
        (40, vec![0; 4096]),
        (41, text(41)),
    ];
    let difference = file(64, &changed);
    let imported = images.import("later", &difference, Some("base")).expect("imported");
    assert_eq!(imported.stored_pages, 3);
    changed.iter().for_each(|(page, bytes)| {
        memory.write_all_at(bytes, page * 4096).expect("written");
    });
    assert_eq!(read(&images, "later"), contents(&memory));
    // And one upon that: back to what the first was.
    let again = file(64, &[(4, text(4)), (5, text(5))]);
    images.import("again", &again, Some("later")).expect("imported");
    again_is(&images, &memory);
}

fn again_is(images: &Images, memory: &File) {
    memory.write_all_at(&text(4), 4 * 4096).expect("written");
    memory.write_all_at(&text(5), 5 * 4096).expect("written");
    assert_eq!(read(images, "again"), contents(memory));
}

#[test]
fn an_export_is_sparse_and_byte_for_byte() {
    let images = images(None);
    let base: Vec<_> = (100..600).map(|page| (page, text(page))).collect();
    images.import("base", &file(5000, &base), None).expect("imported");
    let difference = [(100, vec![0; 4096]), (4999, text(1))];
    images.import("later", &file(5000, &difference), Some("base")).expect("imported");
    let out = tempfile::tempfile().expect("a file");
    assert_eq!(images.export("later", &out).expect("exported"), 500);
    assert_eq!(contents(&out), read(&images, "later"));
    assert!(out.metadata().expect("found").blocks() * 512 < 520 * 4096, "it has no holes");
    let empty = file(9, &[]);
    images.import("empty", &empty, None).expect("imported");
    let out = tempfile::tempfile().expect("a file");
    assert_eq!(images.export("empty", &out).expect("exported"), 0);
    assert_eq!(out.metadata().expect("found").len(), 9 * 4096);
}

#[test]
fn what_is_no_memory_file_or_no_name_is_refused() {
    let images = images(None);
    let memory = file(4, &[(0, text(1))]);
    let refused = |name: &str, file: &File, base: Option<&str>| {
        images.import(name, file, base).expect_err("refused").to_string()
    };
    for name in ["", ".x", "-x", "a/b", "a b", "\u{1b}", &"x".repeat(65)] {
        assert!(refused(name, &memory, None).contains("the name of an image"), "{name}");
    }
    assert!(refused("a", &file(0, &[]), None).contains("0 bytes"));
    let mut odd = tempfile::tempfile().expect("a file");
    odd.write_all(b"half a page").expect("written");
    assert!(refused("a", &odd, None).contains("11 bytes"));
    images.import("a", &memory, None).expect("imported");
    assert!(refused("a", &memory, None).contains("remove it first"));
    assert!(refused("b", &memory, Some("x")).contains("choices: a"));
    assert!(refused("b", &file(5, &[]), Some("a")).contains("its base 16384"));
    let mut below = "a".to_owned();
    for n in 1..image::CHAIN_MAX {
        let name = format!("n{n}");
        images.import(&name, &memory, Some(&below)).expect("imported");
        below = name;
    }
    assert!(refused("deep", &memory, Some(&below)).contains("export it"));
}

/// Pitfall 11.
#[test]
fn an_import_that_does_not_fit_is_undone() {
    let images = images(Some(2 << 20));
    images.import("small", &file(8, &[(0, text(1))]), None).expect("imported");
    let large: Vec<_> = (0..1000).map(|page| (page, noise(page, PAGE))).collect();
    let refused = images.import("large", &file(1000, &large), None).expect_err("refused");
    assert!(refused.to_string().contains("the limit is reached"), "{refused}");
    let names: Vec<_> = images.list().into_iter().map(|info| info.name).collect();
    assert_eq!((names, images.store().len()), (vec!["small".to_owned()], 1));
    assert_eq!(read(&images, "small")[..4096], text(1));
}

fn origin(images: &Images, name: &str, given_up: &[std::ops::Range<u64>]) -> Origin {
    let image = images.claim(name).expect("an image");
    Origin::new(std::sync::Arc::clone(image.image()), given_up.iter().cloned())
}

/// Pitfall 6 once more: what a guest gave up is missing in its difference, and is zeros.
#[test]
fn what_was_given_up_is_zeros_where_a_difference_has_a_hole() {
    let images = images(None);
    let base: Vec<_> = (0..40).map(|page| (page, text(page))).collect();
    images.import("base", &file(64, &base), None).expect("imported");
    let memory = file(64, &[(4, text(104)), (21, text(21))]);
    // 50 is a hole of the base, too; 4 and 21 were written since.
    let origin = origin(&images, "base", &[2..6, 20..22, 38..41, 50..51]);
    let imported = images.import_over("asleep", &memory, &origin, None).expect("imported");
    // 2, 3, 4, 5, 20, 38 and 39.
    assert_eq!(imported.stored_pages, 7);
    let mut right = contents(&file(64, &base));
    for page in [2, 3, 5, 20, 38, 39] {
        right[page * PAGE..][..PAGE].fill(0);
    }
    right[4 * PAGE..][..PAGE].copy_from_slice(&text(104));
    assert!(read(&images, "asleep") == right);
}

/// An image of the same name and length may have come in the place of the guest's.
#[test]
fn a_difference_is_over_the_image_of_its_guest_and_no_other() {
    let images = images(None);
    images.import("base", &file(64, &[(3, text(3))]), None).expect("imported");
    let origin = origin(&images, "base", &[3..4, 9..9]);
    images.remove("base").expect("nobody uses it");
    let difference = file(64, &[]);
    let refused = |said: &str| {
        let error = images.import_over("asleep", &difference, &origin, None).expect_err("refused");
        assert!(error.to_string().contains(said), "{error}");
    };
    refused("no image base");
    images.import("base", &file(64, &[(4, text(4))]), None).expect("imported");
    refused("no image base");
    assert_eq!((images.list().len(), images.store().len()), (1, 1));
}

/// A guest that gave up all of its memory, or every other page, in a file that has every other one.
#[test]
fn what_a_guest_gave_up_costs_no_more_than_looking_at_it() {
    let images = images(None);
    let pages = 20_000;
    images.import("base", &file(pages, &[(0, text(1)), (7, text(2))]), None).expect("imported");
    let held: Vec<_> = (0..pages).step_by(2).map(|page| (page, text(9))).collect();
    let difference = file(pages, &held);
    let all = origin(&images, "base", &[0..pages, 5..u64::from(u32::MAX)]);
    let imported = images.import_over("all", &difference, &all, None).expect("imported");
    assert_eq!((imported.stored_pages, imported.read_pages), (pages / 2 + 1, pages / 2));
    let none = origin(&images, "base", &[]);
    let imported = images.import_over("none", &difference, &none, None).expect("imported");
    assert_eq!(imported.stored_pages, pages / 2);
    assert_eq!(read(&images, "none")[7 * PAGE..8 * PAGE], text(2));
    assert!(read(&images, "all")[7 * PAGE..8 * PAGE].iter().all(|&byte| byte == 0));
}

/// Pitfall 7.
#[test]
fn a_file_that_shrinks_or_changes_harms_no_image() {
    let images = images(None);
    let memory = file(16, &[(0, text(1)), (15, text(2))]);
    images.import("web", &memory, None).expect("imported");
    memory.write_all_at(&text(9), 0).expect("written");
    memory.set_len(4096).expect("shorter");
    assert_eq!(read(&images, "web")[..4096], text(1));
    assert_eq!(read(&images, "web")[15 * 4096..], text(2));
    // As if it had been longer when its length was looked at.
    let short = file(4, &[(0, text(1)), (3, text(2))]);
    let image = Image::new("short".into(), images.places(), 4096, 8, None);
    let part = Part { file: &short, from: 0, pages: 8 };
    let refused = import::import(&image, &[part], Holes::OfBase);
    // Linux shows what is behind the end as a hole, so nothing is read there.
    assert!(refused.is_ok_and(|imported| imported.stored_pages == 2));
}

/// A machine whose documents have these lengths.
fn machine(config: usize, state: usize) -> Machine {
    Machine { config: noise(11, config), state: noise(12, state) }
}

/// Two parts of one file, in another order than they lie there, and one of another.
#[test]
fn a_machine_is_its_parts_one_after_another_and_its_documents() {
    let images = images(None);
    let (one, two) = (file(64, &[(1, text(1)), (40, text(2)), (41, text(3))]), file(8, &[]));
    let page = |number: u64| number * PAGE as u64;
    let part = |file, from, pages| Part { file, from: page(from), pages };
    let parts = [part(&one, 32, 10), part(&two, 0, 8), part(&one, 0, 32)];
    for (name, config, state) in [("a", 1, 1), ("b", 4096, 12_289), ("c", 1, 500_000)] {
        let of = machine(config, state);
        let imported = images.import_machine(name, &parts, &of, None).expect("imported");
        assert_eq!((imported.pages, imported.stored_pages), (50, 3));
        let bytes = read(&images, name);
        let zeros = vec![0; 50 * PAGE];
        let mut wanted = zeros.clone();
        for (at, of) in [(8, 2), (9, 3), (19, 1)] {
            wanted[at * PAGE..][..PAGE].copy_from_slice(&text(of));
        }
        assert!(bytes == wanted, "{name}");
        let image = images.claim(name).expect("an image");
        assert_eq!(image.machine().expect("readable"), Some(of));
    }
    let listed: Vec<_> = images.list().iter().map(|info| info.machine_bytes).collect();
    assert_eq!(listed, [Some(2), Some(16_385), Some(500_001)]);
    // Removed, nothing of them is left.
    ["a", "b", "c"].iter().for_each(|name| images.remove(name).expect("removed"));
    assert_eq!(images.store().len(), 0);
}

#[test]
fn documents_survive_in_a_file_and_older_lists_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("images");
    let images = images(None);
    let memory = file(16, &[(3, text(3))]);
    images.import("plain", &memory, None).expect("imported");
    let part = Part { file: &memory, from: 0, pages: 16 };
    let of = machine(5000, 70_000);
    images.import_machine("whole", &[part], &of, Some("plain")).expect("imported");
    images.save_to(&path).expect("saved");
    let label = String::from_utf8(images.catalog.lock().label()).expect("text");
    // An image of no machine is listed as it was before there were machines.
    assert!(
        label.contains(r#"["plain",0,16,null],["whole",256,16,"plain",[5000,70000]]"#),
        "{label}"
    );
    let again = self::images(None);
    again.load_from(&path).expect("loaded");
    let whole = again.claim("whole").expect("an image");
    assert_eq!(whole.machine().expect("readable"), Some(of));
    assert_eq!(again.claim("plain").expect("an image").machine().expect("readable"), None);
    assert_eq!(read(&again, "whole"), read(&images, "whole"));
    assert_eq!(again.list(), images.list());
}

/// A hole is zeros, whatever the base has there.
#[test]
fn a_machine_over_a_base_costs_what_differs() {
    let images = images(None);
    let base: Vec<_> = (0..20).map(|page| (page, text(page))).collect();
    images.import("base", &file(32, &base), None).expect("imported");
    let mut held = base.clone();
    held.remove(7);
    held[3].1 = text(99);
    held.push((30, text(30)));
    let memory = file(32, &held);
    let part = Part { file: &memory, from: 0, pages: 32 };
    let imported = images.import_machine("later", &[part], &machine(1, 1), Some("base"));
    assert_eq!(imported.expect("imported").stored_pages, 3);
    assert_eq!(read(&images, "later"), contents(&memory));
    let short = Part { file: &memory, from: 0, pages: 31 };
    let refused = images.import_machine("x", &[short], &machine(1, 1), Some("base"));
    assert!(matches!(refused, Err(ImageError::BaseLength { .. })));
}

#[test]
fn a_machine_that_does_not_fit_or_whose_file_shrinks_leaves_nothing() {
    let images = images(Some(2 << 20));
    let memory = file(16, &[(3, text(3))]);
    let part = Part { file: &memory, from: 0, pages: 16 };
    let refused = images.import_machine("big", &[part], &machine(1, 8 << 20), None);
    assert!(refused.expect_err("refused").to_string().contains("the limit is reached"));
    let beyond = Part { pages: 17, ..part };
    let refused = images.import_machine("long", &[beyond], &machine(1, 1), None);
    assert!(refused.expect_err("refused").to_string().contains("shorter"));
    assert!(images.list().is_empty() && images.store().is_empty());
    images.import_machine("fits", &[part], &machine(1, 1), None).expect("imported");
}

#[test]
fn an_image_goes_when_nobody_uses_it() {
    let images = images(None);
    images.import("base", &file(300, &[(0, text(1)), (299, text(2))]), None).expect("imported");
    images.import("later", &file(300, &[(1, text(3))]), Some("base")).expect("imported");
    let refused = images.remove("base").expect_err("refused");
    assert!(refused.to_string().contains("used by the image later"), "{refused}");
    let claim = images.claim("later").expect("an image");
    let refused = images.remove("later").expect_err("refused");
    assert!(refused.to_string().contains("used by a guest"), "{refused}");
    drop(claim);
    images.remove("later").expect("removed");
    images.remove("base").expect("removed");
    assert!(images.remove("base").expect_err("gone").to_string().contains("import one first"));
    assert_eq!((images.list().len(), images.store().len()), (0, 0));
    // Its keys are free again.
    images.import("next", &file(300, &[]), None).expect("imported");
    assert_eq!(images.claim("next").expect("an image").keys().start, 0);
}

#[test]
fn images_and_working_sets_come_back_from_a_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("images");
    let images = images(None);
    for n in 0..100 {
        let name = format!("image-with-a-long-name-so-that-the-list-has-pages-{n}");
        images.import(&name, &file(8, &[(n % 8, text(n))]), None).expect("imported");
    }
    images.import("base", &file(40_000, &[(0, text(1)), (39_999, text(2))]), None).expect("in");
    images.import("a", &file(40_000, &[(1, text(3))]), Some("base")).expect("imported");
    let image = images.claim("a").expect("an image");
    let touched = |&page: &u64| Gated { image: &image, until: None }.touched(page);
    [1, 32_768, 39_999].iter().for_each(touched);
    // An import that has not ended.
    images.store().store(keys::KEYS - 1, &text(1)).expect("stored");
    images.save_to(&path).expect("saved");

    let again = self::images(None);
    again.load_from(&path).expect("loaded");
    assert_eq!(again.list(), images.list());
    assert_eq!(again.claim("a").expect("an image").working_set_pages(), 3);
    assert_eq!(read(&again, "a"), read(&images, "a"));
    assert!(!again.store().contains(keys::KEYS - 1), "it belongs to nobody");
    again.import("b", &file(40_000, &[]), Some("a")).expect("imported");
    assert!(again.load_from(&path).is_err(), "it is not empty");
}

/// Where the last page went to an image, there is none for its working set.
#[test]
fn images_are_saved_where_the_limit_leaves_no_room_for_working_sets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("images");
    let images = images(Some(2 << 20));
    images.import("web", &file(40_000, &[(0, text(1))]), None).expect("imported");
    let import = |n: u64| images.import(&format!("n{n}"), &file(1, &[(0, noise(n, PAGE))]), None);
    let full = (0..1000).find_map(|n| import(n).err()).expect("refused");
    assert!(full.to_string().contains("the limit is reached"), "{full}");
    let image = images.claim("web").expect("an image");
    // Bits that do not compress.
    let bits = (0..4).flat_map(|n| noise(1000 + n, PAGE)).zip(0..5000);
    bits.for_each(|(byte, n)| {
        let asked = (0..8).filter(|bit| byte >> bit & 1 == 1);
        let image = Gated { image: &image, until: None };
        asked.for_each(|bit| image.touched(n * 8 + bit));
    });
    images.save_to(&path).expect("saved");
    let again = self::images(None);
    again.load_from(&path).expect("loaded");
    assert_eq!(again.list().len(), images.list().len());
    assert_eq!(read(&again, "web"), read(&images, "web"));
}

#[test]
fn a_snapshot_of_something_else_or_with_a_wrong_list_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("images");
    let store = Store::open(&StoreOptions::new(1 << 20, CodecKind::Lz4.into())).expect("a store");
    store.store(0, &text(1)).expect("stored");
    store.save_to(b"{\"size\":4096}", &path).expect("saved");
    let refused = images(None).load_from(&path).expect_err("refused");
    assert!(refused.to_string().contains("not a snapshot of guest images"), "{refused}");
    for (list, said) in [
        (r#"["a",0,8,"b"]"#, "a base"),
        (r#"["a",0,8,"a"]"#, "a base"),
        (r#"["a",0,0,null]"#, "a length"),
        (r#"["a",0,18446744073709551615,null]"#, "a length"),
        (r#"["a",4294967295,8,null]"#, "a length"),
        (r#"["a",0,8,null],["b",8192,9,"a"]"#, "a length"),
        (r#"["a/b",0,8,null]"#, "a name"),
        (r#"["a",0,8,null],["b",255,8,null]"#, "overlap"),
        (r#"["a",0,8,null],["a",8192,8,null]"#, "twice"),
        (r#"["a",0,8,null,[1,67108865]]"#, "a length"),
        (r#"["a",4294967040,8,null,[2000000,1]]"#, "a length"),
        (r#"["a",0,8,null,[2000000,1]],["b",256,8,null]"#, "overlap"),
    ] {
        let label = format!(r#"{{"schema":"zfold.guest-images/1","images":[{list}]}}"#);
        store.save_to(label.as_bytes(), &path).expect("saved");
        let images = images(None);
        let refused = images.load_from(&path).expect_err("refused").to_string();
        assert!(refused.contains(said), "{list}: {refused}");
        assert!(images.list().is_empty() && images.store().is_empty(), "{list}");
    }
}

/// The list has to fit into the label of a snapshot.
#[test]
fn there_are_only_so_many_images() {
    let images = images(None);
    let memory = file(1, &[]);
    let import = |n: u64| images.import(&format!("{n:064}"), &memory, None);
    let refused = (0..20_000).find_map(|n| import(n).err()).expect("refused");
    assert!(refused.to_string().contains("start another one"), "{refused}");
    let number = images.list().len();
    assert!(number > 10_000, "{number}");
    let folder = tempfile::tempdir().expect("a folder");
    images.save_to(&folder.path().join("images")).expect("saved");
}

/// Guests, imports and removals at the same time: no page of one is another's.
#[test]
fn imports_removals_and_snapshots_side_by_side() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = images(None);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let images = &images;
            scope.spawn(move || {
                for round in 0..20_u64 {
                    let name = format!("t{thread}");
                    let seed = thread * 1000 + round;
                    let memory = file(64, &[(0, text(seed)), (round % 64, text(seed + 500))]);
                    images.import(&name, &memory, None).expect("imported");
                    assert_eq!(read(images, &name), contents(&memory));
                    images.remove(&name).expect("removed");
                }
            });
        }
        let path = folder.path().join("images");
        for _ in 0..10 {
            images.save_to(&path).expect("saved");
            let again = self::images(None);
            again.load_from(&path).expect("loaded");
            for info in again.list() {
                // Whole, or not there.
                assert_ne!(read(&again, &info.name)[..8], [0; 8]);
            }
        }
    });
    assert_eq!(images.store().len(), 0);
}
