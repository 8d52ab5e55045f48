//! Prefix lengths of a full table of January 2024, and how many routes of each length are roots.

use crate::Family;

/// A length, its number of routes, and the percentage of them that are roots: not covered by another route.
type Share = (u8, u32, usize);

/// Routes by length of an IPv4 table of 901,899 routes, January 2024 (public route collectors).
const V4: [Share; 25] = [
    (8, 16, 100),
    (9, 13, 100),
    (10, 38, 100),
    (11, 103, 96),
    (12, 299, 90),
    (13, 581, 83),
    (14, 1203, 85),
    (15, 2100, 78),
    (16, 13_490, 76),
    (17, 8235, 54),
    (18, 13_798, 50),
    (19, 24_870, 61),
    (20, 42_611, 46),
    (21, 50_750, 45),
    (22, 108_623, 55),
    (23, 96_510, 43),
    (24, 537_698, 49),
    (25, 20, 10),
    (26, 3, 10),
    (27, 11, 10),
    (28, 18, 10),
    (29, 17, 10),
    (30, 3, 10),
    (31, 3, 10),
    (32, 886, 1),
];

/// Routes by length of an IPv6 table of 160,147 routes, January 2024 (public route collectors).
const V6: [Share; 46] = [
    (16, 1, 100),
    (19, 1, 100),
    (20, 16, 100),
    (21, 3, 100),
    (22, 7, 100),
    (23, 8, 100),
    (24, 30, 100),
    (25, 8, 100),
    (26, 15, 100),
    (27, 20, 100),
    (28, 193, 56),
    (29, 4371, 99),
    (30, 650, 56),
    (31, 284, 54),
    (32, 22_548, 75),
    (33, 2926, 19),
    (34, 2603, 28),
    (35, 1043, 38),
    (36, 5996, 43),
    (37, 880, 25),
    (38, 1617, 48),
    (39, 1377, 18),
    (40, 13_418, 24),
    (41, 903, 47),
    (42, 2301, 20),
    (43, 1001, 57),
    (44, 14_365, 28),
    (45, 1553, 18),
    (46, 3039, 47),
    (47, 3153, 21),
    (48, 75_488, 41),
    (49, 11, 5),
    (50, 3, 5),
    (52, 1, 5),
    (55, 1, 5),
    (56, 24, 5),
    (58, 20, 5),
    (60, 2, 5),
    (64, 184, 3),
    (112, 2, 5),
    (122, 1, 5),
    (124, 4, 5),
    (125, 9, 5),
    (126, 19, 5),
    (127, 42, 5),
    (128, 6, 5),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LengthShare {
    pub(super) len: u8,
    pub(super) routes: usize,
    pub(super) roots_percent: usize,
}

/// The lengths of a table of `routes` routes, shortest first, in the proportions of the real table. The counts add up exactly.
pub(super) fn shares(family: Family, routes: usize) -> Vec<LengthShare> {
    let real: &[Share] = match family {
        Family::V4 => &V4,
        Family::V6 => &V6,
    };
    let total: u64 = real.iter().map(|(_, count, _)| u64::from(*count)).sum();
    // Round the cumulative sums: each share is within one of its exact value, and the total is exact.
    let mut sum = 0;
    let mut given = 0;
    let mut shares = Vec::with_capacity(real.len());
    for (len, count, roots_percent) in real {
        sum += u64::from(*count);
        let up_to = u128::from(sum) * routes as u128 / u128::from(total);
        let up_to = usize::try_from(up_to).unwrap_or(routes);
        shares.push(LengthShare { len: *len, routes: up_to - given, roots_percent: *roots_percent });
        given = up_to;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_counts_add_up() {
        let sum = |real: &[Share]| real.iter().map(|(_, count, _)| count).sum::<u32>();
        assert_eq!((sum(&V4), sum(&V6)), (901_899, 160_147));
    }

    #[test]
    fn shares_add_up_at_any_size() {
        for family in [Family::V4, Family::V6] {
            for routes in [0, 1, 2, 10, 1000, 160_147, 901_899, 2_000_000] {
                let shares = shares(family, routes);
                assert_eq!(shares.iter().map(|share| share.routes).sum::<usize>(), routes);
            }
        }
        let longest = LengthShare { len: 24, routes: 537_698, roots_percent: 49 };
        assert!(shares(Family::V4, 901_899).contains(&longest));
    }
}
