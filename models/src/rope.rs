//! Rotary frequencies from a configuration, by the scaling rules that stretch a model's context. Which key says what, and
//! which keys contradict each other, is in `keys`.
//! The rules follow transformers' `modeling_rope_utils.py` (v5.0), whose function each comment names; arithmetic is f64
//! and rounded once.

mod keys;

use crate::checkpoint::{CheckpointError, Config, Fields};
use keys::RopeKeys;
use ropeteam_device::Rope;
use std::f64::consts::TAU;

/// What a family knows about its rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RopeKind {
    /// Elements per head.
    pub head_dim: usize,
    /// Part of a head that is rotated where the configuration does not say; `None`: the family rotates whole heads only.
    pub partial: Option<f64>,
    /// Pairs are neighbours instead of halves.
    pub interleaved: bool,
}

/// Positions where a configuration does not say.
const DEFAULT_MAX_POSITIONS: usize = 2048;

/// Reads the rotation and the longest sequence that it is made for.
pub(crate) fn read(config: &Config, kind: RopeKind) -> Result<(Rope, usize), CheckpointError> {
    let fields = config.fields();
    let keys = RopeKeys::find(&fields)?;
    let max_positions = fields
        .size_if("max_position_embeddings")?
        .unwrap_or(DEFAULT_MAX_POSITIONS);
    let theta = keys.theta()?;
    let rotary_dim = keys.rotary_dim(kind)?;
    let plain: Vec<f64> = (0..rotary_dim / 2)
        .map(|i| theta.powf(-2.0 * i as f64 / rotary_dim as f64))
        .collect();
    let base = Base {
        theta,
        rotary_dim,
        max_positions,
    };
    let scaled = match config.rope_factors() {
        Some(factors) => by_factors(&fields, &plain, factors, base)?,
        None => scaled(&keys, plain, base)?,
    };
    let rope = Rope {
        inv_freq: scaled
            .inv_freq
            .into_iter()
            .map(|freq| freq as f32)
            .collect(),
        scale: scaled.attention_factor as f32,
        interleaved: kind.interleaved,
    };
    if !rope.inv_freq.iter().all(|freq| freq.is_finite()) || !rope.scale.is_finite() {
        return Err(fields.unsupported("rope_theta", "numbers that give finite frequencies"));
    }
    Ok((rope, scaled.max_positions))
}

/// What the rules start from.
#[derive(Clone, Copy)]
struct Base {
    theta: f64,
    rotary_dim: usize,
    max_positions: usize,
}

/// What a rule makes of it.
struct Scaled {
    inv_freq: Vec<f64>,
    attention_factor: f64,
    max_positions: usize,
}

impl Scaled {
    fn new(inv_freq: Vec<f64>, max_positions: usize) -> Self {
        Self {
            inv_freq,
            attention_factor: 1.0,
            max_positions,
        }
    }
}

/// Applies the rule that the configuration names.
fn scaled(keys: &RopeKeys<'_>, plain: Vec<f64>, base: Base) -> Result<Scaled, CheckpointError> {
    let unscaled = |plain| Scaled::new(plain, base.max_positions);
    let Some(section) = keys.section() else {
        return Ok(unscaled(plain));
    };
    let (name, rule) = keys::rule(section)?;
    if matches!(rule, None | Some("default")) {
        return Ok(unscaled(plain));
    }
    keys.refuse_other_original(base.max_positions)?;
    match rule {
        Some("linear") => linear(section, plain, base),
        Some("llama3") => llama3(section, plain, base),
        Some("yarn") => yarn(section, plain, base),
        _ => Err(section.unsupported(name, "default, linear, llama3, yarn")),
    }
}

/// A GGUF file's `rope_freqs.weight`: divisors made from the llama3 rule by the converter.
fn by_factors(
    fields: &Fields<'_>,
    plain: &[f64],
    factors: &[f32],
    base: Base,
) -> Result<Scaled, CheckpointError> {
    let fits = factors.len() == plain.len() && factors.iter().all(|&factor| factor > 0.0);
    if !fits {
        let expected = format!("{} factors above 0 in rope_freqs.weight", plain.len());
        return Err(fields.unsupported("rope_factors", &expected));
    }
    let inv_freq = plain
        .iter()
        .zip(factors)
        .map(|(freq, &factor)| freq / f64::from(factor));
    Ok(Scaled::new(inv_freq.collect(), base.max_positions))
}

fn factor(section: &Fields<'_>) -> Result<f64, CheckpointError> {
    match section.positive("factor")? {
        Some(factor) if factor >= 1.0 => Ok(factor),
        _ => Err(section.unsupported("factor", "a number of at least 1")),
    }
}

/// Positions after stretching those that the model was trained on.
fn stretched(base: Base, original: Option<usize>, factor: f64) -> usize {
    let trained = original.unwrap_or(base.max_positions);
    base.max_positions.max((trained as f64 * factor) as usize)
}

//= transformers modeling_rope_utils.py#_compute_linear_scaling_rope_parameters
fn linear(section: &Fields<'_>, plain: Vec<f64>, base: Base) -> Result<Scaled, CheckpointError> {
    let factor = factor(section)?;
    let original = section.size_if("original_max_position_embeddings")?;
    let inv_freq = plain.into_iter().map(|freq| freq / factor).collect();
    Ok(Scaled::new(inv_freq, stretched(base, original, factor)))
}

//= transformers modeling_rope_utils.py#_compute_llama3_parameters
fn llama3(section: &Fields<'_>, plain: Vec<f64>, base: Base) -> Result<Scaled, CheckpointError> {
    let needed = |field: &str| match section.positive(field)? {
        Some(number) => Ok(number),
        None => Err(section.unsupported(field, "a number above 0")),
    };
    let factor = factor(section)?;
    let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
    let original = section.size("original_max_position_embeddings")? as f64;
    if high <= low {
        return Err(section.unsupported("high_freq_factor", "more than low_freq_factor"));
    }
    let rescale = |freq: f64| {
        let turns = original * freq / TAU;
        if turns < low {
            freq / factor
        } else if turns > high {
            freq
        } else {
            let smooth = (turns - low) / (high - low);
            (1.0 - smooth) * freq / factor + smooth * freq
        }
    };
    Ok(Scaled::new(
        plain.into_iter().map(rescale).collect(),
        base.max_positions,
    ))
}

//= transformers modeling_rope_utils.py#_compute_yarn_parameters
fn yarn(section: &Fields<'_>, plain: Vec<f64>, base: Base) -> Result<Scaled, CheckpointError> {
    let factor = factor(section)?;
    let original = section.size_if("original_max_position_embeddings")?;
    let trained = original.unwrap_or(base.max_positions) as f64;
    let beta_fast = section.positive("beta_fast")?.unwrap_or(32.0);
    let beta_slow = section.positive("beta_slow")?.unwrap_or(1.0);
    // The pair that turns `turns` times over the trained length.
    let pair_of = |turns: f64| {
        base.rotary_dim as f64 * (trained / (turns * TAU)).ln() / (2.0 * base.theta.ln())
    };
    let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
    if section.flag("truncate")?.unwrap_or(true) {
        (low, high) = (low.floor(), high.ceil());
    }
    let low = low.max(0.0);
    let mut high = high.min(base.rotary_dim as f64 - 1.0);
    if low == high {
        high += 0.001;
    }
    let blend = |(pair, freq): (usize, f64)| {
        let stretch = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
        freq / factor * stretch + freq * (1.0 - stretch)
    };
    Ok(Scaled {
        inv_freq: plain.into_iter().enumerate().map(blend).collect(),
        attention_factor: yarn_attention_factor(section, factor)?,
        max_positions: stretched(base, original, factor),
    })
}

fn yarn_attention_factor(section: &Fields<'_>, factor: f64) -> Result<f64, CheckpointError> {
    if let Some(given) = section.positive("attention_factor")? {
        return Ok(given);
    }
    let mscale = |weight: f64| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * weight * factor.ln() + 1.0
        }
    };
    match (section.number("mscale")?, section.number("mscale_all_dim")?) {
        (Some(over), Some(under)) if over != 0.0 && under != 0.0 => {
            Ok(mscale(over) / mscale(under))
        }
        _ => Ok(mscale(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rope(text: &str) -> Result<(Rope, usize), CheckpointError> {
        let kind = RopeKind {
            head_dim: 8,
            partial: None,
            interleaved: false,
        };
        read(&Config::parse(Path::new("config.json"), text)?, kind)
    }

    #[test]
    fn both_generations_of_keys_mean_the_same() {
        let old = r#"{"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}}"#;
        let new =
            r#"{"rope_parameters": {"rope_theta": 100.0, "rope_type": "linear", "factor": 2.0}}"#;
        assert_eq!(rope(old).unwrap(), rope(new).unwrap());
        let (rope, _) = rope(new).unwrap();
        assert!((rope.inv_freq[0] - 0.5).abs() < 1e-6);
        assert!((rope.inv_freq[2] - 0.05).abs() < 1e-6);
    }

    #[test]
    fn stretched_positions_count_as_the_models_own() {
        let positions = |text: &str| rope(text).unwrap().1;
        let yarn = r#"{"max_position_embeddings": 100, "rope_scaling":
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}}"#;
        assert_eq!(positions(yarn), 400);
        let done = r#"{"max_position_embeddings": 400, "rope_scaling":
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}}"#;
        assert_eq!(positions(done), 400);
        assert_eq!(positions(r#"{"max_position_embeddings": 100}"#), 100);
        assert_eq!(
            positions(r#"{"rope_scaling": null, "max_position_embeddings": 7}"#),
            7
        );
    }

    #[test]
    fn a_rule_without_its_numbers_is_refused_by_name() {
        for (text, field) in [
            (
                r#"{"rope_scaling": {"type": "linear"}}"#,
                "rope_scaling.factor",
            ),
            (
                r#"{"rope_scaling": {"type": "yarn", "factor": -1.0}}"#,
                "rope_scaling.factor",
            ),
            (
                r#"{"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}"#,
                "low_freq_factor",
            ),
            (r#"{"rope_scaling": {"rope_type": "mrope"}}"#, "mrope"),
            (r#"{"rope_theta": -5.0}"#, "rope_theta"),
        ] {
            let message = rope(text).unwrap_err().to_string();
            assert!(message.contains(field), "{message}");
        }
    }

    #[test]
    fn keys_that_say_the_same_twice_are_taken() {
        let once = r#"{"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}}"#;
        let twice = r#"{"rope_theta": 100, "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_theta": 100.0, "rope_type": "linear", "factor": 2}}"#;
        assert_eq!(rope(once).unwrap(), rope(twice).unwrap());
        let both_types = r#"{"rope_theta": 100.0, "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}}"#;
        assert_eq!(rope(once).unwrap(), rope(both_types).unwrap());
        let nothing = r#"{"rope_scaling": {"type": "default"},
            "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 1.0}}"#;
        assert_eq!(rope("{}").unwrap(), rope(nothing).unwrap());
        let original = r#"{"max_position_embeddings": 64, "original_max_position_embeddings": 32,
            "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}}"#;
        assert!(rope(original).is_ok());
    }

    #[test]
    fn keys_that_contradict_each_other_are_refused_by_name() {
        for (text, field) in [
            (
                r#"{"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}}"#,
                "rope_scaling.type",
            ),
            (
                r#"{"rope_scaling": {"type": "linear", "factor": 2.0},
                    "rope_parameters": {"rope_type": "linear", "factor": 4.0}}"#,
                "rope_scaling.factor",
            ),
            (
                r#"{"rope_scaling": {"type": "yarn", "factor": 2.0},
                    "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 4.0}}"#,
                "rope_scaling.beta_fast",
            ),
            (
                r#"{"rope_theta": 1000.0, "rope_parameters": {"rope_theta": 100.0}}"#,
                "rope_parameters.rope_theta",
            ),
            (
                r#"{"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2.0}}"#,
                "rope_scaling.type",
            ),
            (
                r#"{"original_max_position_embeddings": 32, "rope_scaling":
                    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}}"#,
                "original_max_position_embeddings",
            ),
            (
                r#"{"max_position_embeddings": 64, "original_max_position_embeddings": 32,
                    "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}"#,
                "original_max_position_embeddings",
            ),
            (
                r#"{"rope_scaling": {"factor": 2.0}}"#,
                "rope_scaling.rope_type",
            ),
            (r#"{"rotary_dim": 4}"#, "rotary_dim"),
        ] {
            let message = rope(text).unwrap_err().to_string();
            assert!(message.contains(field), "{message}");
        }
        assert!(rope(r#"{"rotary_dim": 8}"#).is_ok());
    }
}
