//! When requests are sent: as earlier ones end (closed loop), or by themselves at a rate (open loop). Pure; who sleeps and sends
//! stands in `load.rs`.

use rand::Rng;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Requests per second of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// All at once.
    Infinite,
    /// So many on average, at the times of a Poisson process.
    PerSecond(f64),
}

impl Rate {
    /// When each of `count` requests is due, counted from the start, in order.
    pub fn schedule(self, count: usize, rng: &mut impl Rng) -> Vec<Duration> {
        let Rate::PerSecond(rate) = self else {
            return vec![Duration::ZERO; count];
        };
        let mut due = 0.0;
        let mut next = || {
            // The gaps of a Poisson process are exponentially distributed.
            due -= (1.0 - rng.random::<f64>()).ln() / rate;
            Duration::from_secs_f64(due)
        };
        (0..count).map(|_| next()).collect()
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "inf" {
            return Ok(Rate::Infinite);
        }
        let rate = word.parse::<f64>().ok();
        let rate = rate.filter(|rate| rate.is_finite() && *rate >= 1e-3);
        rate.map(Rate::PerSecond).ok_or_else(|| {
            format!("{word:?} is no rate: expected requests per second, 0.001 or more, or inf")
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Infinite => f.write_str("inf"),
            Rate::PerSecond(rate) => write!(f, "{rate}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for word in ["inf", "4", "0.5"] {
            assert_eq!(word.parse::<Rate>().unwrap().to_string(), word);
        }
        for word in ["0", "-1", "NaN", "infinity", "fast", "1e-9"] {
            assert!(word.parse::<Rate>().is_err(), "{word}");
        }
    }

    #[test]
    fn arrivals_come_at_the_rate_and_with_its_spread() {
        let rate = Rate::PerSecond(20.0);
        let due = rate.schedule(20_000, &mut StdRng::seed_from_u64(3));
        assert!(due.is_sorted());
        let gaps = due.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        let gaps: Vec<_> = gaps.collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.05).abs() < 0.002, "mean gap {mean}");
        assert!(
            (square.sqrt() - 0.05).abs() < 0.003,
            "deviation {}",
            square.sqrt()
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let draw = || Rate::PerSecond(3.0).schedule(50, &mut StdRng::seed_from_u64(9));
        assert_eq!(draw(), draw());
    }

    #[test]
    fn an_infinite_rate_sends_all_at_once() {
        let due = Rate::Infinite.schedule(3, &mut StdRng::seed_from_u64(1));
        assert_eq!(due, vec![Duration::ZERO; 3]);
    }
}
