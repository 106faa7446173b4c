//! How long prompts and answers shall be: one length, or a distribution to draw from.

use rand::Rng;
use std::fmt;
use std::str::FromStr;

/// Lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// Always the same.
    Fixed(u32),
    /// Any length between the two, both included, equally likely.
    Uniform {
        /// Shortest.
        low: u32,
        /// Longest.
        high: u32,
    },
    /// The normal distribution, cut off below one token.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        deviation: f64,
    },
}

impl Lengths {
    /// The next length, at least 1.
    pub fn draw(self, rng: &mut impl Rng) -> u32 {
        match self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform { low, high } => rng.random_range(low..=high),
            Lengths::Normal { mean, deviation } => {
                (mean + deviation * standard_normal(rng)).round().max(1.0) as u32
            }
        }
    }
}

/// One draw of the standard normal distribution (Box and Muller 1958).
fn standard_normal(rng: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{word:?} is no length: expected one like 128, a range like 64..256, or normal(128,32)"
            )
        };
        let whole = |word: &str| {
            let length = word.trim().parse::<u32>().ok();
            length.filter(|length| *length > 0).ok_or_else(wrong)
        };
        if let Some((low, high)) = word.split_once("..") {
            let (low, high) = (whole(low)?, whole(high)?);
            return match low <= high {
                true => Ok(Lengths::Uniform { low, high }),
                false => Err(wrong()),
            };
        }
        let inner = word
            .strip_prefix("normal(")
            .and_then(|rest| rest.strip_suffix(')'));
        let Some((mean, deviation)) = inner.and_then(|inner| inner.split_once(',')) else {
            return whole(word).map(Lengths::Fixed);
        };
        let number = |word: &str| {
            let number = word.trim().parse::<f64>().ok();
            number
                .filter(|number| number.is_finite() && *number >= 0.0)
                .ok_or_else(wrong)
        };
        let (mean, deviation) = (number(mean)?, number(deviation)?);
        match mean >= 1.0 {
            true => Ok(Lengths::Normal { mean, deviation }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Fixed(length) => write!(f, "{length}"),
            Lengths::Uniform { low, high } => write!(f, "{low}..{high}"),
            Lengths::Normal { mean, deviation } => write!(f, "normal({mean},{deviation})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_length_is_read_as_it_is_written() {
        for word in ["1", "128", "64..256", "7..7", "normal(128,32)"] {
            assert_eq!(word.parse::<Lengths>().unwrap().to_string(), word);
        }
        for word in [
            "",
            "0",
            "-1",
            "1.5",
            "9..3",
            "0..4",
            "normal(1)",
            "normal(0,1)",
            "normal(5,-1)",
            "normal(nan,1)",
            "many",
        ] {
            let error = word.parse::<Lengths>().unwrap_err();
            assert!(error.contains("64..256"), "{word}: {error}");
        }
    }

    #[test]
    fn draws_follow_their_distribution() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut draws = |word: &str| -> Vec<f64> {
            let lengths: Lengths = word.parse().unwrap();
            (0..10_000)
                .map(|_| f64::from(lengths.draw(&mut rng)))
                .collect()
        };
        let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len() as f64;
        assert!(draws("9").iter().all(|&x| x == 9.0));
        let uniform = draws("10..20");
        assert!(uniform.iter().all(|x| (10.0..=20.0).contains(x)));
        assert!((mean(&uniform) - 15.0).abs() < 0.2);
        assert!(uniform.contains(&10.0) && uniform.contains(&20.0));
        let normal = draws("normal(100,10)");
        let centre = mean(&normal);
        let variance = mean(
            &normal
                .iter()
                .map(|x| (x - centre).powi(2))
                .collect::<Vec<_>>(),
        );
        assert!((centre - 100.0).abs() < 0.5 && (variance.sqrt() - 10.0).abs() < 0.5);
        assert!(draws("normal(1,50)").iter().all(|&x| x >= 1.0));
    }
}
