//! Lists of CPUs and NUMA nodes in Linux's format, such as `0-3,8`.

/// The ranges of a list, as first and last number. Parts that are neither a number nor a range are skipped.
fn ranges(list: &str) -> impl Iterator<Item = (u64, u64)> {
    list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

/// The count of numbers in a list such as `0-3,8`.
#[must_use]
pub fn count_list(list: &str) -> u64 {
    let count = |(first, last): (u64, u64)| last.checked_sub(first)?.checked_add(1);
    ranges(list).filter_map(count).fold(0, u64::saturating_add)
}

/// Whether a list such as `0-3,8` contains `number`.
#[must_use]
pub fn list_holds(list: &str, number: u64) -> bool {
    ranges(list).any(|(first, last)| (first..=last).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_prints_them() {
        let counts = [("", 0), ("0\n", 1), ("0-3", 4), ("0-3,8", 5), ("0-1,4-5,9", 5), ("x", 0), ("5-2", 0)];
        for (list, count) in counts {
            assert_eq!(count_list(list), count, "{list}");
        }
        assert!(list_holds("0-3,8\n", 8) && list_holds("0-3,8", 2) && list_holds("0", 0));
        assert!(!list_holds("0-3,8", 4) && !list_holds("", 0) && !list_holds("x-y", 0));
    }
}
