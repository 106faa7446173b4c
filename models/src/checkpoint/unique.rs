//! A JSON object whose keys must differ. JSON parsers keep the last of two equal keys, which would hide a damaged file.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

/// The entries of an object with no key twice.
pub(crate) struct UniqueKeys<V>(pub HashMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueKeys<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = UniqueKeys<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = HashMap::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "the name {key} stands there twice"
                )));
            }
            entries.insert(key, value);
        }
        Ok(UniqueKeys(entries))
    }
}
