//! Where a configuration says how positions rotate: `rope_parameters`, formerly `rope_scaling`, beside the top level.
//! Readers of such files do not agree on which of two keys counts, so keys that contradict each other are refused.

use super::RopeKind;
use crate::checkpoint::{CheckpointError, Fields};
use std::collections::BTreeSet;

/// Base of the frequencies where a configuration does not say.
const DEFAULT_THETA: f64 = 10_000.0;
/// Both spellings of the rule's name.
const RULE_NAMES: [&str; 2] = ["rope_type", "type"];
/// What the newer section holds and the older left to the top level.
const MOVED_FROM_THE_TOP: [&str; 2] = ["rope_theta", "partial_rotary_factor"];
const ORIGINAL: &str = "original_max_position_embeddings";

/// The object that holds the scaling rule, and the top level.
pub(super) struct RopeKeys<'a> {
    top: &'a Fields<'a>,
    section: Option<Fields<'a>>,
}

impl<'a> RopeKeys<'a> {
    /// Finds the section; of two they have to say the same.
    pub fn find(top: &'a Fields<'a>) -> Result<Self, CheckpointError> {
        let newer = top.section("rope_parameters")?;
        let older = top.section("rope_scaling")?;
        for section in [&newer, &older].into_iter().flatten() {
            for kind in ["full_attention", "sliding_attention"] {
                if section.has_key(kind) {
                    return Err(section.unsupported(kind, "one rule for all layers"));
                }
            }
        }
        if let (Some(newer), Some(older)) = (&newer, &older) {
            refuse_other_section(newer, older)?;
        }
        let section = newer.or(older);
        Ok(Self { top, section })
    }

    /// The object that holds the rule, if there is one.
    pub fn section(&self) -> Option<&Fields<'a>> {
        self.section.as_ref()
    }

    /// A number of the section or else of the top level; of two they have to be equal.
    fn positive(&self, field: &str) -> Result<Option<f64>, CheckpointError> {
        let outer = self.top.positive(field)?;
        let Some(section) = &self.section else {
            return Ok(outer);
        };
        match (section.positive(field)?, outer) {
            (Some(inner), Some(outer)) if inner != outer => {
                Err(section.unsupported(field, &format!("{outer}, as the top level says")))
            }
            (inner, outer) => Ok(inner.or(outer)),
        }
    }

    /// Base of the frequencies.
    pub fn theta(&self) -> Result<f64, CheckpointError> {
        Ok(self.positive("rope_theta")?.unwrap_or(DEFAULT_THETA))
    }

    /// Elements of a head that rotate.
    pub fn rotary_dim(&self, kind: RopeKind) -> Result<usize, CheckpointError> {
        let given = self.positive("partial_rotary_factor")?;
        let supported = if kind.partial.is_some() {
            "above 0, at most 1"
        } else {
            "1 for this family"
        };
        let partial = given.or(kind.partial).unwrap_or(1.0);
        let refused = partial > 1.0 || (kind.partial.is_none() && partial != 1.0);
        let rotary_dim = (kind.head_dim as f64 * partial) as usize;
        if refused || rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            let holder = self
                .section
                .as_ref()
                .filter(|s| s.has_key("partial_rotary_factor"));
            return Err(holder
                .unwrap_or(self.top)
                .unsupported("partial_rotary_factor", supported));
        }
        match self.top.size_if("rotary_dim")? {
            Some(stated) if stated != rotary_dim => Err(self
                .top
                .unsupported("rotary_dim", &format!("{rotary_dim}, as the heads rotate"))),
            _ => Ok(rotary_dim),
        }
    }

    /// Refuses a trained length on the top level that is not the one that the rule starts from.
    pub fn refuse_other_original(&self, max_positions: usize) -> Result<(), CheckpointError> {
        let inner = match &self.section {
            Some(section) => section.size_if(ORIGINAL)?,
            None => None,
        };
        let counts = inner.unwrap_or(max_positions);
        match self.top.size_if(ORIGINAL)? {
            Some(outer) if outer != counts => Err(self
                .top
                .unsupported(ORIGINAL, &format!("{counts}, as the scaling rule reads it"))),
            _ => Ok(()),
        }
    }
}

/// The name of the scaling rule, and the key that holds it.
pub(super) fn rule<'a>(
    section: &Fields<'a>,
) -> Result<(&'static str, Option<&'a str>), CheckpointError> {
    let [newer, older] = RULE_NAMES;
    match (section.text(newer)?, section.text(older)?) {
        (Some(rule), Some(other)) if rule != other => {
            Err(section.unsupported(older, &format!("{rule}, as rope_type says")))
        }
        (None, None) if section.value("factor").is_some() => {
            Err(section.unsupported(newer, "the name of a rule, where there is a factor"))
        }
        (None, Some(rule)) => Ok((older, Some(rule))),
        (rule, _) => Ok((newer, rule)),
    }
}

/// Refuses an older section that says something else than the newer one.
fn refuse_other_section(newer: &Fields<'_>, older: &Fields<'_>) -> Result<(), CheckpointError> {
    let (_, wanted) = rule(newer)?;
    let (name, found) = rule(older)?;
    let wanted = wanted.unwrap_or("default");
    if found.unwrap_or("default") != wanted {
        return Err(older.unsupported(name, &format!("{wanted}, as rope_parameters says")));
    }
    let fields: BTreeSet<&str> = newer.keys().chain(older.keys()).collect();
    for field in fields {
        let moved = MOVED_FROM_THE_TOP.contains(&field) && older.value(field).is_none();
        if moved || RULE_NAMES.contains(&field) {
            continue;
        }
        if !newer.agrees(older, field) {
            return Err(older.unsupported(field, "the value that rope_parameters has"));
        }
    }
    Ok(())
}
