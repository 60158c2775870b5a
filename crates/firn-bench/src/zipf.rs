//! Zipf-distributed ranks by the method of Gray et al., "Quickly Generating Billion-Record
//! Synthetic Databases" (SIGMOD 1994, section 3.2), as YCSB uses it.
//!
//! The normalisation, zeta(n, theta), is summed exactly at construction. Ranks 0 and 1 have their
//! exact probabilities. For the others the method is an approximation whose distribution function
//! is within 0.02 of the exact one everywhere (the test below checks this).

/// Ranks from 0 (the most frequent) to `items` - 1. Rank r has a probability proportional to
/// `1 / (r + 1)^theta`.
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    two: f64,
}

impl Zipf {
    /// A distribution over `items` ranks.
    ///
    /// REQUIRES: `items` is at least 1; `theta` is at least 0 (uniform) and below 1.
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items >= 1, "a distribution over nothing");
        assert!(
            (0.0..1.0).contains(&theta),
            "theta must be at least 0 and below 1"
        );
        let zeta: f64 = (1..=items)
            .rev()
            .map(|rank| (rank as f64).powf(-theta))
            .sum();
        let two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - two / zeta);
        Self {
            items,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta,
            two,
        }
    }

    /// The rank for `unit`, a uniform number in [0, 1).
    pub fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.items == 1 {
            return 0;
        }
        if scaled < self.two || self.items == 2 {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::seed::Seed;

    /// The fraction of each rank over evenly spaced units, without randomness.
    fn shares(items: u64, theta: f64) -> Vec<f64> {
        const UNITS: u64 = 400_000;
        let zipf = Zipf::new(items, theta);
        let mut shares = vec![0.0; items as usize];
        for i in 0..UNITS {
            shares[zipf.rank((i as f64 + 0.5) / UNITS as f64) as usize] += 1.0 / UNITS as f64;
        }
        shares
    }

    fn exact(items: u64, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=items)
            .map(|rank| 1.0 / (rank as f64).powf(theta))
            .collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn follows_the_exact_distribution() {
        for (items, theta) in [(1_000, 0.99), (1_000, 0.5), (50, 0.9), (10_000, 0.99)] {
            let (shares, exact) = (shares(items, theta), exact(items, theta));
            for rank in 0..2 {
                assert!(
                    (shares[rank] - exact[rank]).abs() < 1e-4,
                    "rank {rank} of {items} at theta {theta}"
                );
            }
            let (mut sum, mut exact_sum) = (0.0, 0.0);
            for rank in 0..items as usize {
                sum += shares[rank];
                exact_sum += exact[rank];
                assert!(
                    (sum - exact_sum).abs() < 0.02,
                    "up to rank {rank} of {items} at theta {theta}"
                );
            }
        }
    }

    #[test]
    fn theta_zero_is_uniform() {
        for share in shares(100, 0.0) {
            assert!((share - 0.01).abs() < 1e-3);
        }
    }

    #[test]
    fn small_and_random_stay_in_bounds() {
        let mut seed = Seed::new(1);
        for items in 1..20 {
            let zipf = Zipf::new(items, 0.99);
            for _ in 0..1000 {
                assert!(zipf.rank(seed.unit()) < items);
            }
        }
    }
}
