//! Error texts, defaults and refusals of the TGI request.

use super::*;
use crate::http::json::parse;

fn request(parameters: &str) -> Request {
    let body = format!(r#"{{"inputs":"C","parameters":{parameters}}}"#);
    parse::<Request>(body.as_bytes()).expect("a request").value
}

fn check_error(parameters: &str, expected: &str) {
    let request = request(parameters);
    let state = AppState::new(Default::default(), Default::default());
    let result = request
        .best_of(&state)
        .and_then(|best_of| request.sampling(best_of, Version::V0_9_4))
        .and_then(|_| request.stop_rules(&state).map(|_| ()));
    assert_eq!(result.expect_err(parameters).message, expected);
}

#[test]
fn error_texts_are_the_originals() {
    check_error(
        r#"{"best_of":3}"#,
        "`best_of` must be > 0 and <= 2. Given: 3",
    );
    check_error(
        r#"{"best_of":2}"#,
        "you must use sampling when `best_of` is > 1",
    );
    check_error(
        r#"{"best_of":2,"do_sample":true,"seed":1}"#,
        "`seed` must not be set when `best_of` > 1",
    );
    check_error(
        r#"{"temperature":0}"#,
        "`temperature` must be strictly positive",
    );
    check_error(
        r#"{"repetition_penalty":0}"#,
        "`repetition_penalty` must be strictly positive",
    );
    check_error(r#"{"top_p":1.0}"#, "`top_p` must be > 0.0 and < 1.0");
    check_error(
        r#"{"typical_p":0.0}"#,
        "`typical_p` must be > 0.0 and < 1.0",
    );
    check_error(r#"{"top_k":0}"#, "`top_k` must be strictly positive");
    check_error(
        r#"{"max_new_tokens":0}"#,
        "`max_new_tokens` must be strictly positive",
    );
    check_error(
        r#"{"stop":["a","b","c","d","e"]}"#,
        "`stop` supports up to 4 stop sequences. Given: 5",
    );
}

#[test]
fn greedy_unless_told_to_sample_or_given_a_warper() {
    for (parameters, samples) in [
        ("{}", false),
        (r#"{"temperature":1.0}"#, false),
        (r#"{"do_sample":true}"#, true),
        (r#"{"temperature":0.7}"#, true),
        (r#"{"top_k":5}"#, true),
        (r#"{"top_p":0.9}"#, true),
        (r#"{"typical_p":0.9}"#, true),
    ] {
        let params = request(parameters).sampling(1, Version::V0_9_4).unwrap();
        assert_eq!(params.temperature > 0.0, samples, "{parameters}");
    }
}

#[test]
fn too_many_tokens_are_told_in_the_originals_words() {
    let request = request(r#"{"max_new_tokens":100}"#);
    let count = TokenCount {
        given: 110,
        limit: 64,
        with_output: true,
    };
    let refusal = Refusal {
        tokens: Some(count),
        ..Refusal::new(Kind::TooLong, "")
    };
    assert_eq!(
        request.in_tgi_words(refusal).message,
        "`inputs` tokens + `max_new_tokens` must be <= 64. Given: 10 `inputs` tokens and 100 `max_new_tokens`"
    );
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let body = br#"{"inputs":"a","parameters":{"watermark":true,"adapter_id":null,"x":1}}"#;
    let ignored = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
    assert!(check_unknown(body, ignored(&["parameters.watermark"])).is_err());
    assert_eq!(
        check_unknown(body, ignored(&["parameters.adapter_id", "parameters.x"])).unwrap(),
        ["parameters.x"]
    );
    let unreadable = br#"{"inputs":"a","parameters":{"timeout":1e400}}"#;
    assert!(check_unknown(unreadable, ignored(&["parameters.timeout"])).is_err());
    let body = br#"{"inputs":"a","parameters":{"watermark":false}}"#;
    assert!(
        check_unknown(body, ignored(&["parameters.watermark"]))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn parameters_may_be_null_or_absent() {
    for body in [r#"{"inputs":"a"}"#, r#"{"inputs":"a","parameters":null}"#] {
        let request = parse::<Request>(body.as_bytes()).unwrap().value;
        let most = request.max_new_tokens(Version::V0_9_4);
        assert_eq!(most, Some(MAX_NEW_TOKENS));
    }
}

#[test]
fn later_versions_have_other_defaults() {
    let without = parse::<Request>(br#"{"inputs":"a"}"#).unwrap().value;
    let with = request("{}");
    assert!(without.samples(Version::Later) && !with.samples(Version::Later));
    assert!(!without.samples(Version::V0_9_4));
    assert_eq!(with.max_new_tokens(Version::Later), None);
    let top = request(r#"{"top_n_tokens":6}"#).checked_top_n();
    let expected = "`top_n_tokens` must be >= 0 and <= 5. Given: 6";
    assert_eq!(top.expect_err("too many").message, expected);
    let top_p = request(r#"{"top_p":1.0}"#);
    assert!(top_p.sampling(1, Version::MindIe).is_ok());
    assert!(top_p.sampling(1, Version::Later).is_err());
}
