//! The table of layouts: read once from the text beside this file.
//!
//! Owns the parsed table for the life of the process. A mistake in the text empties the table, so
//! that every message is refused; a test reads it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use dataplane::wire::ApiKey;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a client to a broker.
    Request,
    /// Back.
    Response,
}

/// Where the bytes of one version of a message lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) version: i16,
    pub(super) flexible: bool,
    pub(super) elements_max: usize,
    pub(super) fields: &'static [Field],
}

/// One field of a structure.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) versions: RangeInclusive<i16>,
    pub(super) tag: Option<u32>,
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum Kind {
    /// This many bytes.
    Fixed(usize),
    /// A string or null.
    Text,
    /// Bytes or null.
    Blob,
    /// An array of plain values, or null.
    List(Box<Kind>),
    /// An array of structures, or null.
    Structs(Vec<Field>),
    /// A structure.
    Struct(Vec<Field>),
    /// A byte, -1 for null or 1, then a structure.
    OptionalStruct(Vec<Field>),
}

/// Both messages of an API.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) name: &'static str,
    pub(super) versions: RangeInclusive<i16>,
    pub(super) request: Vec<Field>,
    pub(super) response: Vec<Field>,
}

static APIS: LazyLock<BTreeMap<i16, Api>> =
    LazyLock::new(|| parse(include_str!("layouts.txt")).unwrap_or_default());

/// The layout of a message, if the table has that version of it.
pub(super) fn find(api_key: i16, direction: Direction, version: i16) -> Option<Layout> {
    let api = APIS.get(&api_key).filter(|api| api.versions.contains(&version))?;
    let (fields, elements_max) = match direction {
        Direction::Request => (&api.request, super::REQUEST_ELEMENTS_MAX),
        Direction::Response => (&api.response, super::RESPONSE_ELEMENTS_MAX),
    };
    let flexible = ApiKey(api_key).is_flexible(version);
    Some(Layout { name: api.name, version, flexible, elements_max, fields })
}

/// Reads the table; the error is the place that cannot be read.
pub(super) fn parse(text: &'static str) -> Result<BTreeMap<i16, Api>, String> {
    let mut apis = BTreeMap::new();
    for block in text.split("\n\n") {
        let mut words = block
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::split_ascii_whitespace)
            .peekable();
        if words.peek().is_some() {
            let (api_key, api) = parse_api(&mut words)?;
            apis.insert(api_key, api);
        }
    }
    Ok(apis)
}

/// The words of a block, one after the other.
type Words<'a> = dyn Iterator<Item = &'static str> + 'a;

fn parse_api(words: &mut Words<'_>) -> Result<(i16, Api), String> {
    let mut next = || words.next().ok_or("an API ends early");
    let (key, name, versions, arrow) = (next()?, next()?, next()?, next()?);
    if arrow != ">" {
        return Err(format!("{name}: no request"));
    }
    let api_key = key.parse().map_err(|_| format!("{name}: key {key}"))?;
    let versions = parse_versions(versions, &(0..=i16::MAX))?;
    let request = parse_fields(words, &versions, Some("<"))?.0;
    let response = parse_fields(words, &versions, None)?.0;
    Ok((api_key, Api { name, versions, request, response }))
}

/// Reads fields up to the word that ends them (`None`: the end of the block), which is returned
/// too: behind a bracket it says the versions and the tag of the structure.
fn parse_fields(
    words: &mut Words<'_>,
    within: &RangeInclusive<i16>,
    end: Option<&str>,
) -> Result<(Vec<Field>, &'static str), String> {
    let mut fields = Vec::new();
    loop {
        let Some(word) = words.next() else {
            return if end.is_none() { Ok((fields, "")) } else { Err("a block ends early".into()) };
        };
        if end.is_some_and(|end| word.starts_with(end)) {
            return Ok((fields, word));
        }
        fields.push(parse_field(word, words, within)?);
    }
}

fn parse_field(
    word: &'static str,
    words: &mut Words<'_>,
    within: &RangeInclusive<i16>,
) -> Result<Field, String> {
    if let Some((name, rest)) = word.split_once(':') {
        let (kind, suffix) = match rest.find(['/', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (versions, tag) = parse_suffix(suffix, within)?;
        return Ok(Field { name, kind: parse_plain(kind)?, versions, tag });
    }
    let (name, close, make): (_, _, fn(Vec<Field>) -> Kind) =
        if let Some(name) = word.strip_suffix("?(") {
            (name, ")", Kind::OptionalStruct)
        } else if let Some(name) = word.strip_suffix('(') {
            (name, ")", Kind::Struct)
        } else if let Some(name) = word.strip_suffix('[') {
            (name, "]", Kind::Structs)
        } else {
            return Err(format!("what is {word}?"));
        };
    let (fields, end) = parse_fields(words, within, Some(close))?;
    let (versions, tag) = parse_suffix(&end[close.len()..], within)?;
    Ok(Field { name, kind: make(fields), versions, tag })
}

fn parse_plain(kind: &str) -> Result<Kind, String> {
    if let Some(element) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return Ok(Kind::List(Box::new(parse_plain(element)?)));
    }
    match kind {
        "str" => Ok(Kind::Text),
        "bytes" => Ok(Kind::Blob),
        "1" | "2" | "4" | "8" | "16" => {
            kind.parse().map(Kind::Fixed).map_err(|_| format!("size {kind}"))
        }
        other => Err(format!("what is {other}?")),
    }
}

/// `/3+#0` and its parts.
fn parse_suffix(
    suffix: &str,
    within: &RangeInclusive<i16>,
) -> Result<(RangeInclusive<i16>, Option<u32>), String> {
    let (versions, tag) = match suffix.split_once('#') {
        Some((versions, tag)) => (versions, Some(tag.parse().map_err(|_| format!("tag {tag}"))?)),
        None => (suffix, None),
    };
    match versions.strip_prefix('/') {
        Some(versions) => Ok((parse_versions(versions, within)?, tag)),
        None if versions.is_empty() => Ok((within.clone(), tag)),
        None => Err(format!("what is {suffix}?")),
    }
}

/// `3+`, `2` or `1-7`.
fn parse_versions(text: &str, within: &RangeInclusive<i16>) -> Result<RangeInclusive<i16>, String> {
    let number = |text: &str| text.parse::<i16>().map_err(|_| format!("version {text}"));
    if let Some(from) = text.strip_suffix('+') {
        return Ok(number(from)?..=*within.end());
    }
    match text.split_once('-') {
        Some((from, to)) => Ok(number(from)?..=number(to)?),
        None => Ok(number(text)?..=number(text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_to_its_end() {
        let text = include_str!("layouts.txt");
        let apis = parse(text).unwrap();
        let requests = text.lines().filter(|line| line.starts_with('>')).count();
        let responses = text.lines().filter(|line| line.starts_with('<')).count();
        assert_eq!((apis.len(), apis.len()), (requests, responses));
        assert_eq!(APIS.len(), apis.len());
        let metadata = &apis[&3];
        assert_eq!((metadata.name, metadata.versions.clone()), ("Metadata", 0..=13));
        assert_eq!(metadata.request[2].versions, 8..=10);
        assert_eq!(apis[&18].response[3].tag, Some(0));
    }

    #[test]
    fn mistakes_are_found() {
        for text in [
            "3 Metadata 0-13 < a:4",
            "3 Metadata 0-13 > a:4",
            "3 Metadata 0-13 > a:3 < b:4",
            "3 Metadata 0-13 > a[ b:4 < b:4",
            "3 Metadata 0-13 > a < b:4",
            "3 Metadata 0-13 > a:4/x < b:4",
            "three Metadata 0-13 > a:4 < b:4",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
