//! The real SmolLM2-135M-Instruct against what transformers computed: the embedded default model, fetched if it is not in the
//! cache, or the folder or GGUF file that `ROPETEAM_SMOLLM2` names.

mod tiny_models;

use ropeteam_device::Precision;
use ropeteam_models::source::{Places, locate};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tiny_models::{Model, Setup, argmax, load, nll};

/// Mean nll of the text in f32 arithmetic, with the weights rounded to bf16 and with those of the Q4_1 file as they are.
const NLL: f64 = 3.01926;
const NLL_GGUF_F32: f64 = 3.01896;

#[derive(Deserialize)]
struct Goldens {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    ids: Vec<u32>,
    fp32: Run,
}

#[derive(Deserialize)]
struct Run {
    tokens: Vec<u32>,
    margins: Vec<f32>,
    /// Token id, logit, log-probability.
    first_top20: Vec<(u32, f32, f32)>,
}

#[derive(Deserialize)]
struct Perplexity {
    ids: Vec<u32>,
}

fn fixture<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/smollm2")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn path() -> PathBuf {
    match std::env::var_os("ROPETEAM_SMOLLM2") {
        Some(path) => path.into(),
        None => locate(None, &Places::from_env().unwrap()).unwrap().path,
    }
}

fn smollm2(precision: Precision) -> Model {
    let setup = Setup {
        model_len: 2880,
        sequences: 1,
        step_tokens: 256,
        ..Setup::new(precision)
    };
    load(&path(), setup).unwrap()
}

fn is_gguf() -> bool {
    path()
        .extension()
        .is_some_and(|extension| extension == "gguf")
}

fn mean_nll(model: &mut Model) -> f64 {
    let ids = fixture::<Perplexity>("perplexity.json").ids;
    let (mut sum, mut start) = (0.0, 0);
    while start < ids.len() {
        let end = ids.len().min(start + 256);
        let chunk = model.chunk(
            0,
            start,
            &ids[start..end],
            ropeteam_engine::plan::Want::AllLogits,
        );
        let output = model.step(vec![chunk]);
        let scored = (start..end).filter(|&position| position + 1 < ids.len());
        sum += scored
            .map(|position| nll(output.row(position - start), ids[position + 1]))
            .sum::<f64>();
        start = end;
    }
    sum / (ids.len() - 1) as f64
}

#[test]
fn perplexity_is_that_of_the_reference() {
    let expected = if is_gguf() { NLL_GGUF_F32 } else { NLL };
    let found = mean_nll(&mut smollm2(Precision::F32));
    println!("nll in f32: {found:.5}");
    assert!((found - expected).abs() < 0.001, "nll in f32: {found}");
    let found = mean_nll(&mut smollm2(Precision::Bf16));
    println!("nll in bf16: {found:.5}");
    assert!((found - NLL).abs() < 0.005, "nll in bf16: {found}");
}

/// What weights in few bits, and the int8 activations that they are multiplied by, may cost.
#[test]
fn few_bits_cost_little() {
    for (precision, allowed) in [
        (Precision::Int8, 0.010),
        (Precision::Int4, 0.012),
        (Precision::Stored, 0.012),
    ] {
        let found = mean_nll(&mut smollm2(precision));
        println!("nll in {precision:?}: {found:.5}");
        let cost = found - NLL;
        assert!(cost < allowed, "{precision:?} costs {cost}");
    }
}

#[test]
fn greedy_texts_are_those_of_the_reference() {
    if is_gguf() {
        println!(
            "the reference was computed with weights rounded to bf16, which the file's are not"
        );
        return;
    }
    let mut model = smollm2(Precision::F32);
    for item in fixture::<Goldens>("goldens.json").items {
        let rows = model.all_logits(&item.ids, item.ids.len());
        for &(id, logit, _) in &item.fp32.first_top20 {
            let found = rows.last().unwrap()[id as usize];
            assert!(
                (found - logit).abs() < 1e-3,
                "logit of {id}: {found}, expected {logit}"
            );
        }
        let certain = item
            .fp32
            .margins
            .iter()
            .take_while(|&&margin| margin > 2e-3)
            .count();
        let tokens = model.greedy(&item.ids, item.fp32.tokens.len());
        assert_eq!(tokens[..certain], item.fp32.tokens[..certain]);
    }
}

#[test]
fn bf16_differs_by_rounding_only() {
    let mut model = smollm2(Precision::Bf16);
    let (mut same, mut positions) = (0, 0);
    for Item { ids, fp32 } in fixture::<Goldens>("goldens.json").items {
        // The reference's own tokens are fed, so that one difference does not hide what follows.
        let whole = [&ids[..], &fp32.tokens].concat();
        let rows = model.all_logits(&whole, 200);
        let rows = &rows[ids.len() - 1..];
        let differences = fp32
            .first_top20
            .iter()
            .map(|&(id, logit, _)| (rows[0][id as usize] - logit).abs());
        let mean = differences.sum::<f32>() / fp32.first_top20.len() as f32;
        assert!(mean < 0.3, "the best logits differ by {mean} on average");
        for (row, (&token, &margin)) in rows.iter().zip(fp32.tokens.iter().zip(&fp32.margins)) {
            let found = argmax(row);
            assert!(
                margin <= 1.0 || found == token,
                "{found} instead of {token}"
            );
            same += usize::from(found == token);
            positions += 1;
        }
    }
    println!("best token equal at {same} of {positions} positions");
    assert!(same * 10 >= positions * 9);
}
