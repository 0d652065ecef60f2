//! The regions of a guest's memory, as a VMM sends them, checked against the image (G6).
//!
//! The format is Firecracker's: an array of `GuestRegionUffdMapping`. Earlier versions call
//! `page_size` by another name, `page_size_kib`, and mean bytes all the same.

use std::ops::Range;

use serde::Deserialize;
use zfold_uffd::page::PAGE;

/// Most regions of a guest.
const REGIONS_MAX: usize = 4096;

/// Page sizes that guests have.
const UNITS: [u64; 2] = [PAGE as u64, 2 << 20];

/// Where the kernel's half of all addresses begins, at the latest.
const ADDRESS_END: u64 = 1 << 56;

/// Said where the image is most likely that of another snapshot.
const OTHER: &str = "connect to the image of this snapshot";

/// A range of addresses and what lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Addresses in the guest's VMM.
    pub(crate) at: Range<usize>,
    /// Page of the image at its beginning.
    pub(crate) page: u64,
    /// Bytes of a page there.
    pub(crate) unit: usize,
    /// Number of its first page among the pages of all regions.
    pub(crate) first: u64,
}

impl Region {
    /// Returns its pages, by their numbers among the pages of all regions.
    pub(crate) fn units(&self) -> Range<u64> {
        self.first..self.first + (self.at.len() / self.unit) as u64
    }

    /// Pages of the image in one page of this region.
    pub(crate) fn pages(&self) -> u64 {
        (self.unit / PAGE) as u64
    }
}

/// A region as the message describes it, not checked yet.
#[derive(Deserialize)]
struct Mapping {
    base_host_virt_addr: u64,
    size: u64,
    /// Where it is in the image.
    offset: u64,
    #[serde(default)]
    page_size: Option<u64>,
    #[serde(default)]
    page_size_kib: Option<u64>,
}

/// Returns the regions in the message of a guest, sorted by address; its image has `image_pages`
/// pages.
///
/// # Errors
/// Why they are refused, in a line.
pub(crate) fn parse(text: &[u8], image_pages: u64) -> Result<Vec<Region>, String> {
    let told: Vec<Mapping> = serde_json::from_slice(text)
        .map_err(|error| format!("the message does not say where memory is: {error}"))?;
    match told.len() {
        0 => return Err("the message has no region".to_owned()),
        1..=REGIONS_MAX => {}
        number => return Err(format!("{number} regions are more than {REGIONS_MAX}")),
    }
    let image = image_pages * PAGE as u64;
    let checked = told.iter().map(|one| check(one, image));
    let mut regions = checked.collect::<Result<Vec<_>, _>>()?;
    regions.sort_by_key(|region| region.at.start);
    if regions.windows(2).any(|two| two[0].at.end > two[1].at.start) {
        return Err("two regions overlap".to_owned());
    }
    // A VMM names all memory. So the image bounds what a guest costs here (G6).
    let all = regions.iter().fold(0_u64, |all, region| all.saturating_add(region.at.len() as u64));
    if all != image {
        return Err(format!(
            "the regions have {all} bytes together, but the image has {image}: {OTHER}"
        ));
    }
    let mut first = 0;
    for region in &mut regions {
        region.first = first;
        first = region.units().end;
    }
    Ok(regions)
}

fn check(told: &Mapping, image: u64) -> Result<Region, String> {
    let unit = told.page_size.or(told.page_size_kib);
    let unit = unit.ok_or("a region does not say its page size")?;
    if !UNITS.contains(&unit) {
        return Err(format!("a page size of {unit} bytes is neither 4 KiB nor 2 MiB"));
    }
    let Mapping { base_host_virt_addr: address, size, offset, .. } = *told;
    let is_whole = address % unit == 0 && size % unit == 0 && offset % PAGE as u64 == 0;
    let end = address.checked_add(size).filter(|end| *end <= ADDRESS_END);
    let Some(end) = end.filter(|_| size > 0 && address > 0 && is_whole) else {
        return Err(format!("{size} bytes at {address:#x} are not a range of whole pages"));
    };
    let at = address as usize..end as usize;
    match offset.checked_add(size) {
        Some(end) if end <= image => {
            Ok(Region { at, page: offset / PAGE as u64, unit: unit as usize, first: 0 })
        }
        end => Err(format!(
            "a region ends at {} of the memory file, but the image has {image} bytes: {OTHER}",
            end.unwrap_or(u64::MAX)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Firecracker 1.16 sends two regions.
    const SENT: &str = r#"[
        {"base_host_virt_addr":140000000000000,"size":8192,"offset":4096,"page_size":4096,
         "page_size_kib":4096},
        {"base_host_virt_addr":130000000000000,"size":4096,"offset":0,"page_size":4096}]"#;

    #[test]
    fn regions_are_sorted_and_counted() {
        let regions = parse(SENT.as_bytes(), 3).expect("right");
        assert_eq!(regions[0].at, 130_000_000_000_000..130_000_000_004_096);
        assert_eq!((regions[0].page, regions[0].units()), (0, 0..1));
        assert_eq!((regions[1].page, regions[1].units()), (1, 1..3));
    }

    #[test]
    fn the_page_size_has_an_older_name() {
        let text = br#"[{"base_host_virt_addr":4194304,"size":2097152,"offset":0,
            "page_size_kib":2097152}]"#;
        let regions = parse(text, 512).expect("right");
        assert_eq!((regions[0].unit, regions[0].pages(), regions[0].units()), (2 << 20, 512, 0..1));
    }

    #[test]
    fn what_does_not_fit_the_image_is_refused() {
        let one = |address: u64, size: u64, offset: u64, page: u64| {
            let text = format!(
                r#"[{{"base_host_virt_addr":{address},"size":{size},"offset":{offset},
                "page_size":{page}}}]"#
            );
            parse(text.as_bytes(), 16).expect_err("refused").to_string()
        };
        for (told, said) in [
            (one(4096, 17 * 4096, 0, 4096), "connect to the image"),
            (one(4096, 4096, 16 * 4096, 4096), "connect to the image"),
            (one(4096, 4096, u64::MAX - 4095, 4096), "connect to the image"),
            (one(4096, 4096, 1, 4096), "whole pages"),
            (one(4097, 4096, 0, 4096), "whole pages"),
            (one(0, 4096, 0, 4096), "whole pages"),
            (one(4096, 0, 0, 4096), "whole pages"),
            (one(u64::MAX - 4095, 8192, 0, 4096), "whole pages"),
            (one(1 << 60, 8192, 0, 4096), "whole pages"),
            (one(4096, 4096, 0, 8192), "neither 4 KiB"),
            (one(4096, 2 << 20, 0, 2 << 20), "whole pages"),
        ] {
            assert!(told.contains(said), "{told}");
        }
        let refused = |text: &str| parse(text.as_bytes(), 16).expect_err("refused").to_string();
        assert!(refused("[]").contains("no region"));
        assert!(refused("[1]").contains("does not say where"));
        assert!(refused(r#"[{"size":4096}]"#).contains("does not say where"));
        assert!(
            refused(r#"[{"base_host_virt_addr":4096,"size":4096,"offset":0}]"#)
                .contains("does not say its page size")
        );
        let twice = r#"{"base_host_virt_addr":4096,"size":8192,"offset":0,"page_size":4096}"#;
        assert!(refused(&format!("[{twice},{twice}]")).contains("overlap"));
        // Side by side, all with the same pages of the image.
        let many = |number: u64| {
            let one = |n: u64| {
                let at = (n + 1) * 8192;
                format!(r#"{{"base_host_virt_addr":{at},"size":8192,"offset":0,"page_size":4096}}"#)
            };
            format!("[{}]", (0..number).map(one).collect::<Vec<_>>().join(","))
        };
        parse(many(8).as_bytes(), 16).expect("no more than the image");
        assert!(refused(&many(9)).contains("73728 bytes together"));
    }
}
