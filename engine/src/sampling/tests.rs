//! The processors against reference values (`tests/fixtures/sampling.json`, made with transformers), and the sampler as a whole.

use super::*;
use serde_json::Value;
use std::collections::HashSet;

const FIXTURE: &str = include_str!("../../../tests/fixtures/sampling.json");

fn logits(value: &Value) -> Vec<f32> {
    let values = value.as_array().expect("a list of logits");
    values
        .iter()
        .map(|v| v.as_f64().map_or(f32::NEG_INFINITY, |v| v as f32))
        .collect()
}

fn ids(value: &Value) -> Vec<TokenId> {
    let values = value.as_array().expect("a list of ids");
    values
        .iter()
        .map(|v| TokenId(v.as_u64().expect("an id") as u32))
        .collect()
}

fn apply(op: &str, value: &Value, case: &Value, candidates: &mut Candidates) {
    let number = value.as_f64().unwrap_or(0.0) as f32;
    let (prompt, output) = (ids(&case["prompt_ids"]), ids(&case["output_ids"]));
    let counts = TokenCounts::new(&prompt, &output);
    match op {
        "temperature" => temperature::temperature(candidates, number),
        "top_k" => top_k::top_k(candidates, number as u32),
        "top_p" => top_p::top_p(candidates, number).unwrap(),
        "min_p" => min_p::min_p(candidates, number).unwrap(),
        "typical_p" => typical::typical_p(candidates, number).unwrap(),
        "epsilon_cutoff" => cutoff::epsilon_cutoff(candidates, number).unwrap(),
        "eta_cutoff" => cutoff::eta_cutoff(candidates, number).unwrap(),
        "repetition_penalty" => penalty::repetition_penalty(candidates.row_mut(), &counts, number),
        "frequency_penalty" => penalty::frequency_penalty(candidates.row_mut(), &counts, number),
        "presence_penalty" => penalty::presence_penalty(candidates.row_mut(), &counts, number),
        "no_repeat_ngram" => {
            ngram::no_repeat_ngram(candidates.row_mut(), &prompt, &output, number as u32)
        }
        "suppress_tokens" => suppress::suppress_tokens(candidates.row_mut(), &ids(value)),
        "logit_bias" => {
            let pairs = value.as_object().expect("biases by id").iter();
            let bias: Vec<_> = pairs
                .map(|(id, v)| (TokenId(id.parse().unwrap()), v.as_f64().unwrap() as f32))
                .collect();
            bias::logit_bias(candidates.row_mut(), &bias);
        }
        unknown => panic!("the fixture has an operation {unknown} that is not built"),
    }
}

#[test]
fn every_processor_and_chain_agrees_with_the_reference() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 82);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let mut candidates = Candidates::default();
        candidates.begin(&logits(&case["logits"]));
        for op in case["ops"].as_array().unwrap() {
            apply(
                op["op"].as_str().unwrap(),
                &op["value"],
                case,
                &mut candidates,
            );
        }
        let expected = logits(&case["logits_out"]);
        let mut found = vec![f32::NEG_INFINITY; expected.len()];
        candidates
            .iter()
            .for_each(|(id, logit)| found[id.0 as usize] = logit);
        for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let same =
                found == expected || (found - expected).abs() < 1e-5 * expected.abs().max(1.0);
            assert!(same, "{name}: logit {id} is {found}, not {expected}");
        }
        let total = candidates.weigh().unwrap();
        let expected = case["probs_out"].as_array().unwrap();
        for index in 0..candidates.len() {
            let id = candidates.id(index);
            let found = f64::from(candidates.weights[index]) / total;
            let expected = expected[id.0 as usize].as_f64().unwrap();
            assert!(
                (found - expected).abs() < 2e-6,
                "{name}: p({id}) is {found}, not {expected}"
            );
        }
    }
}

fn context<'a>(params: &'a SamplingParams, output: &'a [TokenId]) -> Context<'a> {
    Context {
        params,
        prompt: &[],
        output,
        counts: None,
        banned: &[],
        allowed: None,
    }
}

#[test]
fn greedy_takes_the_lowest_of_equal_tokens_also_at_a_tiny_temperature() {
    let row = [0.0, 5.0, 5.0, 1.0];
    let mut sampler = Sampler::default();
    for temperature in [0.0, 1e-9] {
        let params = SamplingParams {
            temperature,
            ..SamplingParams::default()
        };
        assert_eq!(sampler.choose(&row, context(&params, &[])), Ok(TokenId(1)));
    }
}

#[test]
fn a_draw_depends_on_seed_and_position_only() {
    let row: Vec<f32> = (0..500).map(|i| (i % 7) as f32).collect();
    let params = |seed| SamplingParams {
        seed,
        top_p: 0.9,
        ..SamplingParams::default()
    };
    let drawn = |sampler: &mut Sampler, seed, position: usize| {
        let output = vec![TokenId(3); position];
        sampler
            .choose(&row, context(&params(seed), &output))
            .unwrap()
    };
    let (mut fresh, mut used) = (Sampler::default(), Sampler::default());
    let first: Vec<_> = (0..20)
        .map(|position| drawn(&mut fresh, 1, position))
        .collect();
    let backwards: Vec<_> = (0..20)
        .rev()
        .map(|position| drawn(&mut used, 1, position))
        .collect();
    assert!(first.iter().eq(backwards.iter().rev()));
    let distinct: HashSet<_> = first.iter().collect();
    assert!(distinct.len() > 5, "positions have numbers of their own");
    let other: Vec<_> = (0..20)
        .map(|position| drawn(&mut used, 2, position))
        .collect();
    assert_ne!(first, other);
}

#[test]
fn banned_tokens_do_not_come_and_a_row_of_them_is_an_error() {
    let params = SamplingParams::greedy();
    let banned = [TokenId(1), TokenId(900)];
    let mut context = context(&params, &[]);
    context.banned = &banned;
    let mut sampler = Sampler::default();
    assert_eq!(sampler.choose(&[0.0, 9.0], context), Ok(TokenId(0)));
    let row = [f32::NEG_INFINITY, 9.0];
    assert_eq!(sampler.choose(&row, context), Err(BadLogits::NoCandidate));
    assert_eq!(
        sampler.choose(&[f32::NAN, 9.0], context),
        Err(BadLogits::NotANumber)
    );
}

#[test]
fn parameters_out_of_range_are_named() {
    let check = |params: SamplingParams, field: &str| {
        let error = params.validate().unwrap_err();
        assert_eq!(error.field, field, "{error}");
    };
    let good = SamplingParams::default;
    assert_eq!(good().validate(), Ok(()));
    assert_eq!(SamplingParams::greedy().validate(), Ok(()));
    check(
        SamplingParams {
            temperature: -0.1,
            ..good()
        },
        "temperature",
    );
    check(
        SamplingParams {
            temperature: f32::NAN,
            ..good()
        },
        "temperature",
    );
    check(
        SamplingParams {
            top_p: 0.0,
            ..good()
        },
        "top_p",
    );
    check(
        SamplingParams {
            typical_p: 1.5,
            ..good()
        },
        "typical_p",
    );
    check(
        SamplingParams {
            min_p: -1.0,
            ..good()
        },
        "min_p",
    );
    check(
        SamplingParams {
            presence_penalty: 2.5,
            ..good()
        },
        "presence_penalty",
    );
    check(
        SamplingParams {
            repetition_penalty: 0.0,
            ..good()
        },
        "repetition_penalty",
    );
    let bias = vec![(TokenId(1), f32::INFINITY)];
    check(
        SamplingParams {
            logit_bias: bias,
            ..good()
        },
        "logit_bias",
    );
}

/// The general way, without its short cuts.
fn choose_step_by_step(row: &[f32], params: &SamplingParams) -> Result<TokenId, BadLogits> {
    let mut candidates = Candidates::default();
    candidates.begin(row);
    candidates.max()?;
    temperature::temperature(&mut candidates, params.temperature);
    top_k::top_k(&mut candidates, params.top_k);
    top_p::top_p(&mut candidates, params.top_p)?;
    candidates.draw(random::uniform(params.seed, 0))
}

proptest::proptest! {
    #[test]
    fn short_cuts_choose_what_the_general_way_chooses(
        values in proptest::collection::vec(-40i32..40, 1..700), unit in 0.01f32..3.0,
        k in 0u32..60, nucleus in 0.2f32..2.0, temperature in 0.05f32..3.0, seed in 0u64..1000,
    ) {
        let row: Vec<f32> = values.iter().map(|&v| v as f32 * unit).collect();
        let params = SamplingParams {
            temperature,
            top_k: if k == 1 { 2 } else { k },
            top_p: nucleus.min(1.0),
            seed,
            ..SamplingParams::default()
        };
        let context = Context {
            params: &params,
            prompt: &[],
            output: &[],
            counts: None,
            banned: &[],
            allowed: None,
        };
        let chosen = Sampler::default().choose(&row, context);
        proptest::prop_assert_eq!(chosen, choose_step_by_step(&row, &params));
        if let Some(count) = params.best_that_decide().filter(|count| *count as usize <= row.len()) {
            let mut sorted = row.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let last = sorted[count as usize - 1];
            let all = row.iter().zip(0..).map(|(&logit, id)| (TokenId(id), logit));
            let best: Vec<_> = all.filter(|(_, logit)| *logit >= last - last.abs() * 1e-6).collect();
            proptest::prop_assert_eq!(Sampler::default().choose_among(&best, context), chosen);
        }
    }
}
