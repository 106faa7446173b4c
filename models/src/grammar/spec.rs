//! What a request may ask for, and its way into the compiler's own form. Not here: schemas (`schema.rs`), other notations of grammars
//! (`ebnf.rs`).

use super::{GrammarError, NESTING_MAX, TEXT_BYTES_MAX, ebnf, schema};
use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};

/// What an output must obey.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GrammarSpec {
    /// A JSON value that satisfies a schema.
    Json {
        /// The schema, as JSON text.
        schema: String,
        /// What may stand between the value's parts.
        whitespace: Whitespace,
    },
    /// A whole match of a regular expression, in the syntax of the crate `regex`; `^` at its begin and `$` at its end change nothing.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of the language that a grammar describes: Lark with rules like `start: "a" | b`, or EBNF (GBNF) with rules like
    /// `root ::= "a" | b`.
    Grammar(String),
}

/// What may stand between the parts of a JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Whitespace {
    /// Nothing, a blank, or a line break with a short indent: enough for the styles that models have, and never without end.
    #[default]
    Short,
    /// Nothing.
    None,
    /// What a regular expression matches.
    Pattern(String),
}

impl Whitespace {
    fn pattern(&self) -> &str {
        match self {
            Whitespace::Pattern(pattern) => pattern,
            Whitespace::Short | Whitespace::None => "",
        }
    }
}

impl GrammarSpec {
    /// Any JSON object.
    pub fn json_object() -> Self {
        GrammarSpec::Json {
            schema: r#"{"type":"object"}"#.to_owned(),
            whitespace: Whitespace::default(),
        }
    }

    /// Itself as a text, for another process.
    pub(super) fn source(&self) -> String {
        serde_json::to_string(self).expect("texts and lists of texts have a JSON form")
    }

    /// From what [`source`](Self::source) wrote.
    pub(super) fn from_source(source: &str) -> Result<Self, GrammarError> {
        serde_json::from_str(source).map_err(|error| GrammarError::Invalid(error.to_string()))
    }

    pub(super) fn check_size(&self) -> Result<(), GrammarError> {
        let bytes = match self {
            GrammarSpec::Json { schema, whitespace } => schema.len() + whitespace.pattern().len(),
            GrammarSpec::Regex(text) | GrammarSpec::Grammar(text) => text.len(),
            GrammarSpec::Choice(texts) => texts.iter().map(|text| text.len() + 1).sum(),
        };
        within("its length in bytes", bytes, TEXT_BYTES_MAX)?;
        let nested = match self {
            GrammarSpec::Regex(text) | GrammarSpec::Grammar(text) => text,
            // The JSON parser has a bound for the schema itself.
            GrammarSpec::Json { whitespace, .. } => whitespace.pattern(),
            GrammarSpec::Choice(_) => "",
        };
        within("its depth of nesting", depth(nested), NESTING_MAX)
    }

    pub(super) fn grammar(&self) -> Result<TopLevelGrammar, GrammarError> {
        Ok(match self {
            GrammarSpec::Json { schema, whitespace } => {
                TopLevelGrammar::from_json_schema(schema::prepared(schema, whitespace)?)
            }
            GrammarSpec::Regex(expression) => TopLevelGrammar::from_regex(expression),
            GrammarSpec::Choice(texts) => TopLevelGrammar::from_lark(any_of(texts)?),
            GrammarSpec::Grammar(text) if ebnf::is_ebnf(text) => {
                TopLevelGrammar::from_lark(ebnf::to_lark(text)?)
            }
            GrammarSpec::Grammar(text) => TopLevelGrammar::from_lark(text.clone()),
        })
    }
}

fn within(what: &'static str, given: usize, limit: usize) -> Result<(), GrammarError> {
    match given <= limit {
        true => Ok(()),
        false => Err(GrammarError::TooLarge { what, given, limit }),
    }
}

/// How deep brackets stand inside each other; those in quotes count too, which does no harm.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

fn any_of(texts: &[String]) -> Result<String, GrammarError> {
    if texts.is_empty() {
        let message = "at least one choice is expected";
        return Err(GrammarError::Invalid(message.to_owned()));
    }
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    Ok(format!("start: {}", quoted.join(" | ")))
}

/// A text as a literal of Lark, which writes them as JSON does.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
