//! Which modules an entry of `targets` or `ignore` means: one of that name, all of a class, or all that a pattern after `re:`
//! matches from the name's beginning on.

use regex::Regex;

/// An entry of `targets` or `ignore`.
#[derive(Debug)]
pub(super) enum Target {
    /// A module's name or class.
    Name(String),
    /// A pattern.
    Pattern(Regex),
}

impl Target {
    /// Reads an entry; the error says what is wrong with its pattern.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("re:") {
            None => Ok(Target::Name(text.to_owned())),
            Some(pattern) => Regex::new(&format!("^(?:{pattern})"))
                .map(Target::Pattern)
                .map_err(|error| error.to_string()),
        }
    }

    /// Whether `module` is meant.
    pub(super) fn matches(&self, module: &str) -> bool {
        match self {
            Target::Name(name) => name == module || name == class(module),
            Target::Pattern(pattern) => pattern.is_match(module),
        }
    }
}

/// The class of a module with a matrix. Decoders have two.
fn class(module: &str) -> &'static str {
    match module.rsplit('.').next() {
        Some("embed_tokens") => "Embedding",
        _ => "Linear",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_classes_and_patterns_mean_modules() {
        let matches = |target: &str, module: &str| Target::parse(target).unwrap().matches(module);
        assert!(matches("Linear", "model.layers.0.mlp.down_proj"));
        assert!(!matches("Linear", "model.embed_tokens"));
        assert!(matches("lm_head", "lm_head"));
        assert!(!matches("lm_head", "model.lm_head"));
        assert!(matches("re:.*down_proj", "model.layers.0.mlp.down_proj"));
        assert!(matches("re:model.layers", "model.layers.0.mlp.down_proj"));
        assert!(!matches("re:layers", "model.layers.0.mlp.down_proj"));
        assert!(Target::parse("re:(").is_err());
    }
}
