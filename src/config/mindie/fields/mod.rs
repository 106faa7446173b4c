//! Every field of MindIE's configuration: where it stands, what values it takes, what becomes of it. What the server's sections hold stands in
//! `server.rs`, what the engine's hold in `backend.rs`.

mod backend;
mod server;

use super::Became;
use super::shape::Shape;
use super::whole::Whole;
use serde_json::Value;

/// One field.
pub struct Field {
    /// Its section and key.
    pub name: &'static str,
    /// The values that it takes.
    pub shape: Shape,
    /// What becomes of it.
    pub becomes: Becomes,
}

/// What becomes of a field.
#[derive(Clone, Copy)]
pub enum Becomes {
    /// The value of our option of that key.
    Option(&'static str),
    /// The same, so many times.
    Times(&'static str, i64),
    /// Nothing, and why.
    Nothing(&'static str),
    /// Nothing if it is this, else it is refused: why.
    Only(&'static str, &'static str),
    /// What a rule says.
    By(fn(&Value, &Whole) -> Result<Became, String>),
}

const fn field(name: &'static str, shape: Shape, becomes: Becomes) -> Field {
    Field {
        name,
        shape,
        becomes,
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Field> {
    server::FIELDS.iter().chain(backend::FIELDS)
}
