//! Thoughts: what stands between `<think>` and `</think>`. Blanks and line breaks at the tags belong to neither side.

use super::first_marker;
use ropeteam_models::text::ChatTemplate;

const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// Where an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// With text, or with the tag: the model decides (Qwen 3).
    FromTag,
    /// With thoughts, though the tag may come first (DeepSeek; prompts that end with the tag).
    AtOnce,
}

impl Thinking {
    /// How a model with that template thinks, if it does.
    pub fn of(template: &ChatTemplate) -> Option<Self> {
        let thinks = template.mentions(BEGIN) || template.mentions(END);
        thinks.then_some(Thinking::FromTag)
    }

    /// The same behind a prompt that may have begun the thoughts, or ended them.
    pub fn after(self, prompt: &str) -> Option<Self> {
        let prompt = prompt.trim_end();
        match (prompt.ends_with(BEGIN), prompt.ends_with(END)) {
            (true, _) => Some(Thinking::AtOnce),
            (_, true) => None,
            _ => Some(self),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the beginning: nothing but blanks has come.
    Start,
    Inside,
    Outside,
}

/// Parts the thoughts from the text.
#[derive(Debug)]
pub(super) struct ThoughtReader {
    begins: Thinking,
    place: Place,
    held: String,
    /// Blanks at the begin of what comes are left out.
    trims: bool,
}

impl ThoughtReader {
    pub fn new(begins: Thinking) -> Self {
        ThoughtReader {
            begins,
            place: Place::Start,
            held: String::new(),
            trims: false,
        }
    }

    pub fn is_inside(&self) -> bool {
        match self.place {
            Place::Start => self.begins == Thinking::AtOnce,
            Place::Inside => true,
            Place::Outside => false,
        }
    }

    /// Takes a piece; returns thoughts and text that are certain now. Thoughts come before the text.
    pub fn push(&mut self, piece: &str) -> (String, String) {
        self.held.push_str(piece);
        let mut thought = String::new();
        if self.place == Place::Start && !self.leave_start() {
            return (thought, String::new());
        }
        if self.place == Place::Inside {
            thought = self.thoughts();
        }
        let text = match self.place {
            Place::Outside => self.text(),
            Place::Start | Place::Inside => String::new(),
        };
        (thought, text)
    }

    /// Sees whether the answer begins with the tag; false while that is open.
    fn leave_start(&mut self) -> bool {
        let begun = self.held.trim_start();
        let begins_with_tag = begun.starts_with(BEGIN);
        if !begins_with_tag && BEGIN.starts_with(begun) {
            return false;
        }
        if begins_with_tag {
            self.held = begun[BEGIN.len()..].to_owned();
        }
        let inside = begins_with_tag || self.begins == Thinking::AtOnce;
        self.trims = inside;
        self.place = if inside {
            Place::Inside
        } else {
            Place::Outside
        };
        true
    }

    fn thoughts(&mut self) -> String {
        self.trim();
        let (at, end) = first_marker(&self.held, &[END]);
        let shown = self.held[..at].trim_end().len();
        let thought = self.held[..shown].to_owned();
        match end {
            Some(_) => {
                self.held.drain(..at + END.len());
                self.place = Place::Outside;
                self.trims = true;
            }
            // Blanks before what may be the tag wait with it.
            None => drop(self.held.drain(..shown)),
        }
        thought
    }

    fn text(&mut self) -> String {
        self.trim();
        std::mem::take(&mut self.held)
    }

    fn trim(&mut self) {
        if self.trims {
            let blanks = self.held.len() - self.held.trim_start().len();
            self.held.drain(..blanks);
            self.trims = self.held.is_empty();
        }
    }

    /// The answer has ended.
    pub fn finish(&mut self) -> (String, String) {
        let rest = std::mem::take(&mut self.held);
        match self.is_inside() {
            true => (rest, String::new()),
            false => (String::new(), rest),
        }
    }
}
