//! The sampling values that a model's authors recommend, for requests that leave them out.

use crate::start_error::StartError;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_models::SamplingDefaults;

/// The recommended values; plain sampling where there is none.
///
/// # Errors
/// A value out of its range, named.
pub fn sampling(recommended: &SamplingDefaults) -> Result<SamplingParams, StartError> {
    let plain = SamplingParams::default();
    let greedy = recommended.do_sample == Some(false);
    let params = SamplingParams {
        temperature: if greedy {
            0.0
        } else {
            recommended.temperature.unwrap_or(plain.temperature)
        },
        top_p: recommended.top_p.unwrap_or(plain.top_p),
        top_k: recommended.top_k.unwrap_or(plain.top_k),
        repetition_penalty: recommended
            .repetition_penalty
            .unwrap_or(plain.repetition_penalty),
        ..plain
    };
    let wrong = |error| {
        StartError::Model(format!(
            "generation_config.json: {error}; --generation-config off leaves it out"
        ))
    };
    params.validate().map(|()| params).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_authors_leave_out_stays_plain() {
        let recommended = SamplingDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            ..SamplingDefaults::default()
        };
        let expected = SamplingParams {
            temperature: 0.6,
            top_k: 20,
            ..SamplingParams::default()
        };
        assert_eq!(sampling(&recommended).unwrap(), expected);
    }

    #[test]
    fn do_sample_false_means_greedy() {
        let recommended = SamplingDefaults {
            do_sample: Some(false),
            temperature: Some(0.6),
            ..SamplingDefaults::default()
        };
        assert_eq!(sampling(&recommended).unwrap().temperature, 0.0);
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let recommended = SamplingDefaults {
            top_p: Some(7.0),
            ..SamplingDefaults::default()
        };
        let error = sampling(&recommended).unwrap_err().to_string();
        assert!(
            error.starts_with("model: generation_config.json: top_p"),
            "{error}"
        );
    }
}
