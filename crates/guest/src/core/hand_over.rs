//! The formats in which VMMs describe their memory.
//!
//! - Firecracker's: an array of `GuestRegionUffdMapping`. Earlier versions call `page_size` by
//!   another name, `page_size_kib`, and mean bytes all the same.
//! - A format that also names the files in which the memory lies, so that pages can be taken out of
//!   it. Its fields are those of a proposal for cloud-hypervisor that is not decided, so it may
//!   change.

use serde::Deserialize;
use zfold_uffd::page::PAGE;

/// Most files of a guest.
pub(crate) const FILES: usize = 3;

/// A region as the message describes it, not checked yet.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) address: u64,
    pub(super) size: u64,
    /// Where it is in the image.
    pub(super) offset: u64,
    pub(super) page_size: Option<u64>,
    /// The file in which it lies, and the offset there.
    pub(super) place: Option<(usize, u64)>,
}

/// A region in Firecracker's format.
#[derive(Deserialize)]
struct Mapping {
    base_host_virt_addr: u64,
    size: u64,
    offset: u64,
    #[serde(default)]
    page_size: Option<u64>,
    #[serde(default)]
    page_size_kib: Option<u64>,
}

impl From<Mapping> for Told {
    fn from(one: Mapping) -> Self {
        Self {
            address: one.base_host_virt_addr,
            size: one.size,
            offset: one.offset,
            page_size: one.page_size.or(one.page_size_kib),
            place: None,
        }
    }
}

#[derive(Deserialize)]
struct Regions {
    regions: Vec<Backed>,
}

/// A region in the format with files.
#[derive(Deserialize)]
struct Backed {
    host_addr: u64,
    length: u64,
    offset: u64,
    #[serde(default)]
    fault_size: Option<u64>,
    /// Number among the descriptors that follow the userfaultfd.
    #[serde(default)]
    backing: usize,
    backing_offset: u64,
}

impl From<Backed> for Told {
    fn from(one: Backed) -> Self {
        Self {
            address: one.host_addr,
            size: one.length,
            offset: one.offset,
            page_size: one.fault_size.or(Some(PAGE as u64)),
            place: Some((one.backing, one.backing_offset)),
        }
    }
}

/// Returns whether a message, or the beginning of one, is of the format with files.
pub(crate) fn has_files(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

/// Returns how many descriptors belong to a complete message: the userfaultfd, and the files.
pub(crate) fn descriptors(text: &[u8]) -> usize {
    if !has_files(text) {
        return 1;
    }
    // A message that makes no sense is refused when its regions are checked.
    let files =
        read(text).unwrap_or_default().into_iter().filter_map(|told| told.place).map(|at| at.0);
    1 + files.map(|number| number.min(FILES - 1) + 1).max().unwrap_or(0)
}

/// Returns the regions of a message.
pub(super) fn read(text: &[u8]) -> Result<Vec<Told>, serde_json::Error> {
    if has_files(text) {
        let told: Regions = serde_json::from_slice(text)?;
        return Ok(told.regions.into_iter().map(Told::from).collect());
    }
    let told: Vec<Mapping> = serde_json::from_slice(text)?;
    Ok(told.into_iter().map(Told::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_in_files_are_read_and_their_descriptors_counted() {
        let text = br#" {"regions": [
            {"host_addr": 4096, "length": 8192, "offset": 0, "backing_offset": 12288},
            {"host_addr": 65536, "length": 4096, "offset": 8192, "fault_size": 2097152,
             "backing": 1, "backing_offset": 0}], "prot": 3}"#;
        let told = read(text).expect("right");
        assert_eq!((told[0].place, told[0].page_size), (Some((0, 12288)), Some(4096)));
        assert_eq!((told[1].place, told[1].page_size), (Some((1, 0)), Some(2 << 20)));
        assert_eq!((descriptors(text), has_files(text)), (3, true));
        let many = br#"{"regions": [{"host_addr": 4096, "length": 8192, "offset": 0,
            "backing": 99999999, "backing_offset": 0}]}"#;
        assert_eq!(descriptors(many), 1 + FILES);
        assert_eq!((descriptors(b"[]"), descriptors(b"{}"), has_files(b" [")), (1, 1, false));
        assert!(read(b"{}").is_err());
    }
}
