//! Whether files in memory get huge pages here.
//!
//! A write of 4 KiB into such a file makes a page of 2 MiB, the rest of which is there and zeros.
//! Versions of cloud-hypervisor that do not ask for pages that are there would read these zeros.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux says so.
pub(super) const PLACE: &str = "/sys/kernel/mm/transparent_hugepage";

/// Returns the setting that gives files in memory huge pages, if one does.
pub(super) fn setting(place: &Path) -> Option<PathBuf> {
    let sizes = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_sizes = sizes.map(|size| size.join("shmem_enabled"));
    let all = std::iter::once(place.join("shmem_enabled")).chain(of_sizes);
    let is_on = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        ["[always]", "[within_size]", "[force]"].iter().any(|on| text.contains(on))
    };
    all.into_iter().find(is_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_on_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(setting(folder.path()), None);
        let (all, size) =
            (folder.path().join("shmem_enabled"), folder.path().join("hugepages-64kB"));
        fs::create_dir(&size).expect("made");
        let of_size = size.join("shmem_enabled");
        for (one, other, found) in [
            ("always within_size advise [never] deny force\n", "[inherit] never\n", None),
            ("always within_size [advise] never deny force\n", "never\n", None),
            ("always [within_size] advise never deny force\n", "[never]\n", Some(&all)),
            ("[never]\n", "[always] inherit\n", Some(&of_size)),
        ] {
            fs::write(&all, one).expect("written");
            fs::write(&of_size, other).expect("written");
            assert_eq!(setting(folder.path()).as_ref(), found, "{one} {other}");
        }
    }
}
