//! Finds the calls in an answer. What begins like a call and turns out to be none is text, to the last character; what was told as a call
//! stays one, and is not complete if it breaks off.

use super::arg_tags::{Progress, TaggedArguments};
use super::call_object::{CallObject, Step};
use super::json_value::{JsonEnd, Seen};
use super::{CallFormat, Calls, Part, first_marker};
use std::sync::Arc;

/// Where the reading stands.
#[derive(Debug)]
enum Place {
    /// In text.
    Text,
    /// Where a call may begin: behind a marker or another call.
    Between,
    /// In a call that is an object.
    Object(Box<CallObject>),
    /// In the arguments of a call whose name stood before them.
    Arguments(JsonEnd),
    /// In arguments that stand between tags.
    Tagged(TaggedArguments),
}

/// What may be a name outside of the arguments.
enum Named {
    /// It is one, and the arguments begin so many bytes on.
    Found(String, usize),
    /// That is open.
    Open,
    No,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct CallReader {
    format: CallFormat,
    names: Arc<[String]>,
    texts: Arc<[(String, String)]>,
    one_only: bool,
    place: Place,
    /// Not read yet.
    held: String,
    /// What was read of a call that is not told yet.
    raw: String,
    /// Blanks that are text only if other text follows.
    blanks: String,
    shown: bool,
    told: usize,
    complete: usize,
    /// The call that is read now is told.
    in_call: bool,
}

impl CallReader {
    pub fn new(calls: &Calls) -> Self {
        CallReader {
            format: calls.format,
            names: calls.names.clone(),
            texts: calls.texts.clone(),
            one_only: calls.one_only,
            place: Place::Text,
            held: String::new(),
            raw: String::new(),
            blanks: String::new(),
            shown: false,
            told: 0,
            complete: 0,
            in_call: false,
        }
    }

    /// Whether there are calls, none of them broken off.
    pub fn are_complete(&self) -> bool {
        self.told > 0 && self.told == self.complete
    }

    pub fn push(&mut self, text: &str, parts: &mut Vec<Part>) {
        self.held.push_str(text);
        while !self.is_over() && self.go_on(parts) {}
    }

    /// Whether nothing more is wanted.
    fn is_over(&self) -> bool {
        self.one_only && self.complete > 0
    }

    /// Reads on until the next change of place; false when more text is needed for that.
    fn go_on(&mut self, parts: &mut Vec<Part>) -> bool {
        match std::mem::replace(&mut self.place, Place::Text) {
            Place::Text => self.text(parts),
            Place::Between => self.between(parts),
            Place::Object(object) => self.object(object, parts),
            Place::Arguments(end) => self.arguments(end, parts),
            Place::Tagged(arguments) => self.tagged(arguments, parts),
        }
    }

    fn text(&mut self, parts: &mut Vec<Part>) -> bool {
        if !self.shown && self.told == 0 {
            let blanks = self.held.len() - self.held.trim_start().len();
            let Some(first) = self.held[blanks..].chars().next() else {
                return false;
            };
            if self.format == CallFormat::Arguments {
                self.held.drain(..blanks);
                self.tell(self.names.first().cloned().unwrap_or_default(), parts);
                self.place = Place::Arguments(JsonEnd::default());
                return true;
            }
            if self.format.begins_bare(first) {
                self.raw.extend(self.held.drain(..blanks));
                self.place = Place::Between;
                return true;
            }
            if self.format == CallFormat::Glm4 {
                match self.named() {
                    Named::Found(..) => {
                        self.place = Place::Between;
                        return true;
                    }
                    Named::Open => return false,
                    Named::No => {}
                }
            }
        }
        let (at, marker) = first_marker(&self.held, self.format.markers());
        let text: String = self.held.drain(..at).collect();
        self.show(&text, parts);
        let Some(marker) = marker else { return false };
        let length = self.format.markers()[marker].len();
        self.raw.extend(self.held.drain(..length));
        self.place = Place::Between;
        true
    }

    fn between(&mut self, parts: &mut Vec<Part>) -> bool {
        self.place = Place::Between;
        self.skip(char::is_whitespace);
        let marks = || self.format.markers().iter().chain(self.format.end_marker());
        let begins = |mark: &&&str| self.held.starts_with(**mark);
        if let Some(mark) = marks().find(begins) {
            let (length, ends) = (mark.len(), Some(mark) == self.format.end_marker());
            let mark: String = self.held.drain(..length).collect();
            match ends {
                true => {
                    self.raw.clear();
                    self.place = Place::Text;
                }
                false => self.raw.push_str(&mark),
            }
            return true;
        }
        if marks().any(|mark| mark.starts_with(self.held.as_str())) || self.held.is_empty() {
            return false;
        }
        if self.format == CallFormat::Glm45 {
            return self.name_before_tags(parts);
        }
        if self.held.starts_with('{') {
            self.place = Place::Object(Box::new(CallObject::new()));
            return true;
        }
        if self.is_listed() && self.held.starts_with(['[', ']', ',', ';']) {
            self.skip_to(1);
            return true;
        }
        match self.named() {
            Named::Found(name, length) => {
                self.held.drain(..length);
                self.tell(name, parts);
                self.place = Place::Arguments(JsonEnd::default());
            }
            Named::Open => return false,
            Named::No => self.give_up(parts),
        }
        true
    }

    /// Reads what separates calls: nothing to show, unless no call comes.
    fn skip(&mut self, separates: fn(char) -> bool) {
        let end = self.held.find(|c| !separates(c));
        self.skip_to(end.unwrap_or(self.held.len()));
    }

    fn skip_to(&mut self, end: usize) {
        let skipped = self.held.drain(..end);
        if self.told == 0 || !self.raw.is_empty() {
            self.raw.extend(skipped);
        }
    }

    /// Whether calls may stand in a list or behind separators.
    fn is_listed(&self) -> bool {
        self.format != CallFormat::Hermes
    }

    /// Looks for one of the names at the beginning of what is held, with the brace of its arguments behind it.
    fn named(&self) -> Named {
        if !self.format.names_outside() {
            return Named::No;
        }
        let blanks = self.held.len() - self.held.trim_start().len();
        let text = &self.held[blanks..];
        let mut open = false;
        for name in self.names.iter() {
            let Some(rest) = text.strip_prefix(name.as_str()) else {
                open |= name.starts_with(text);
                continue;
            };
            let between = rest.find('{').map_or(rest, |brace| &rest[..brace]);
            let fits = match self.format {
                CallFormat::Glm4 => between.trim().is_empty(),
                // Marks of newer versions stand there: an id of the call, and that arguments follow.
                _ => between.trim().is_empty() || between.trim_start().starts_with('['),
            };
            match (fits, between.len() < rest.len()) {
                (true, true) => {
                    let length = blanks + name.len() + between.len();
                    return Named::Found(name.clone(), length);
                }
                (true, false) => open = true,
                (false, _) => {}
            }
        }
        if open { Named::Open } else { Named::No }
    }

    fn object(&mut self, mut object: Box<CallObject>, parts: &mut Vec<Part>) -> bool {
        let held = std::mem::take(&mut self.held);
        let mut read = 0;
        let mut step = Step::Open;
        for c in held.chars() {
            read += c.len_utf8();
            step = object.take(c);
            // Told at its very character, however the answer is cut: from there on it is a call, whatever follows.
            if let Some(name) = object.name.as_ref().filter(|_| !self.in_call) {
                match self.names.contains(name) {
                    true => self.tell(name.clone(), parts),
                    false => step = Step::Wrong,
                }
            }
            if step == Step::Wrong && self.in_call {
                // What does not belong to the call may be text.
                read -= c.len_utf8();
            }
            if step != Step::Open {
                break;
            }
        }
        let (taken, left) = held.split_at(read);
        left.clone_into(&mut self.held);
        let is_told = self.in_call;
        if !is_told {
            self.raw.push_str(taken);
        }
        if step == Step::Wrong && !is_told {
            self.give_up(parts);
            return true;
        }
        if is_told && !object.arguments.is_empty() {
            parts.push(Part::Arguments(std::mem::take(&mut object.arguments)));
        }
        match step {
            Step::Open => {
                self.place = Place::Object(object);
                false
            }
            Step::Complete => {
                self.complete += 1;
                self.in_call = false;
                self.place = Place::Between;
                true
            }
            // It was told already: it stays, incomplete.
            Step::Wrong => {
                self.in_call = false;
                true
            }
        }
    }

    fn arguments(&mut self, mut end: JsonEnd, parts: &mut Vec<Part>) -> bool {
        let mut read = 0;
        let mut seen = Seen::Inside;
        for c in self.held.chars() {
            seen = end.take(c);
            if seen != Seen::Behind {
                read += c.len_utf8();
            }
            if seen != Seen::Inside {
                break;
            }
        }
        let arguments: String = self.held.drain(..read).collect();
        if !arguments.is_empty() {
            parts.push(Part::Arguments(arguments));
        }
        if seen == Seen::Inside {
            self.place = Place::Arguments(end);
            return false;
        }
        self.complete += 1;
        self.in_call = false;
        self.place = match self.format {
            CallFormat::Mistral => Place::Between,
            _ => Place::Text,
        };
        true
    }

    /// Behind a marker stands a name, and tags or the end behind that.
    fn name_before_tags(&mut self, parts: &mut Vec<Part>) -> bool {
        let marked = !self.raw.trim().is_empty();
        let name_end = self.held.find(['<', '\n']);
        let name = self.held[..name_end.unwrap_or(self.held.len())].trim_end();
        let known = self.names.iter().find(|known| *known == name).cloned();
        let texts = self.texts.iter().filter(|(tool, _)| tool == name);
        let texts = texts.map(|(_, key)| key.clone()).collect();
        match (known.filter(|_| marked), name_end) {
            (Some(name), Some(end)) => {
                self.held.drain(..end);
                self.tell(name, parts);
                self.place = Place::Tagged(TaggedArguments::new(texts));
            }
            (_, None) if marked && self.names.iter().any(|known| known.starts_with(name)) => {
                return false;
            }
            _ => self.give_up(parts),
        }
        true
    }

    fn tagged(&mut self, mut arguments: TaggedArguments, parts: &mut Vec<Part>) -> bool {
        let end = self.format.end_marker().copied().unwrap_or_default();
        let mut json = String::new();
        let progress = arguments.read(&mut self.held, end, &mut json);
        if !json.is_empty() {
            parts.push(Part::Arguments(json));
        }
        match progress {
            Progress::Open => {
                self.place = Place::Tagged(arguments);
                return false;
            }
            Progress::Complete => {
                self.complete += 1;
                self.in_call = false;
            }
            // It was told already: it stays, incomplete.
            Progress::Wrong => self.in_call = false,
        }
        true
    }

    fn tell(&mut self, name: String, parts: &mut Vec<Part>) {
        self.raw.clear();
        self.blanks.clear();
        self.told += 1;
        self.in_call = true;
        parts.push(Part::Call(name));
    }

    /// What was taken for a call is text.
    fn give_up(&mut self, parts: &mut Vec<Part>) {
        let raw = std::mem::take(&mut self.raw);
        self.show(&raw, parts);
        self.shown |= self.told == 0;
        self.place = Place::Text;
    }

    fn show(&mut self, text: &str, parts: &mut Vec<Part>) {
        self.blanks.push_str(text);
        let end = self.blanks.trim_end().len();
        if end == 0 {
            return;
        }
        let text = self.blanks.drain(..end).collect();
        self.shown = true;
        parts.push(Part::Text(text));
    }

    /// The answer has ended: what waited for more is text.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        if self.is_over() {
            return;
        }
        if matches!(self.place, Place::Tagged(_)) {
            // Half a pair says nothing.
            self.held.clear();
        }
        let mut rest = std::mem::take(&mut self.raw);
        rest.push_str(&std::mem::take(&mut self.held));
        self.show(&rest, parts);
        let blanks = std::mem::take(&mut self.blanks);
        if self.told == 0 && !blanks.is_empty() {
            parts.push(Part::Text(blanks));
        }
        self.place = Place::Text;
    }
}
