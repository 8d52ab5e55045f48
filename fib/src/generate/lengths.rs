//! How prefix lengths and address blocks are shared out in a full table of January 2024.

use crate::Family;

/// Routes by length of an IPv4 table of 901,899 routes, January 2024 (public route collectors).
const V4: [(u8, u32); 25] = [
    (8, 16),
    (9, 13),
    (10, 38),
    (11, 103),
    (12, 299),
    (13, 581),
    (14, 1203),
    (15, 2100),
    (16, 13_490),
    (17, 8235),
    (18, 13_798),
    (19, 24_870),
    (20, 42_611),
    (21, 50_750),
    (22, 108_623),
    (23, 96_510),
    (24, 537_698),
    (25, 20),
    (26, 3),
    (27, 11),
    (28, 18),
    (29, 17),
    (30, 3),
    (31, 3),
    (32, 886),
];

/// Routes by length of an IPv6 table of 160,147 routes, January 2024 (public route collectors).
const V6: [(u8, u32); 46] = [
    (16, 1),
    (19, 1),
    (20, 16),
    (21, 3),
    (22, 7),
    (23, 8),
    (24, 30),
    (25, 8),
    (26, 15),
    (27, 20),
    (28, 193),
    (29, 4371),
    (30, 650),
    (31, 284),
    (32, 22_548),
    (33, 2926),
    (34, 2603),
    (35, 1043),
    (36, 5996),
    (37, 880),
    (38, 1617),
    (39, 1377),
    (40, 13_418),
    (41, 903),
    (42, 2301),
    (43, 1001),
    (44, 14_365),
    (45, 1553),
    (46, 3039),
    (47, 3153),
    (48, 75_488),
    (49, 11),
    (50, 3),
    (52, 1),
    (55, 1),
    (56, 24),
    (58, 20),
    (60, 2),
    (64, 184),
    (112, 2),
    (122, 1),
    (124, 4),
    (125, 9),
    (126, 19),
    (127, 42),
    (128, 6),
];

/// The lengths of `routes` routes, shortest first, in the real table's proportions: `(length, routes)`, adding up exactly.
pub(super) fn shares(family: Family, routes: usize) -> Vec<(u8, usize)> {
    let real: &[(u8, u32)] = match family {
        Family::V4 => &V4,
        Family::V6 => &V6,
    };
    let total: u64 = real.iter().map(|(_, count)| u64::from(*count)).sum();
    // Cumulative rounding: each share is within one of its exact value and nothing is lost.
    let mut sum = 0;
    let mut given = 0;
    let mut shares = Vec::with_capacity(real.len());
    for (len, count) in real {
        sum += u64::from(*count);
        let up_to = u128::from(sum) * routes as u128 / u128::from(total);
        let up_to = usize::try_from(up_to).unwrap_or(routes);
        shares.push((*len, up_to - given));
        given = up_to;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_counts_add_up() {
        let sum = |real: &[(u8, u32)]| real.iter().map(|(_, count)| count).sum::<u32>();
        assert_eq!((sum(&V4), sum(&V6)), (901_899, 160_147));
    }

    #[test]
    fn shares_add_up_at_any_size() {
        for family in [Family::V4, Family::V6] {
            for routes in [0, 1, 2, 10, 1000, 160_147, 901_899, 2_000_000] {
                let shares = shares(family, routes);
                assert_eq!(shares.iter().map(|(_, count)| count).sum::<usize>(), routes);
            }
        }
        assert!(shares(Family::V4, 901_899).contains(&(24, 537_698)));
    }
}
