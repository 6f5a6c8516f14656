//! Protocol primitives: integers, strings, arrays, varints and tagged fields, read and written.
//!
//! Owns nothing, runs on whichever thread calls it. Must never allocate for a count or length
//! before the bytes it promises were seen.

use bytes::{BufMut, BytesMut};
use storage::TopicId;

/// A peer's bytes do not form the message they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("{message}: ends inside field {field}")]
    Truncated {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A field's value is impossible.
    #[error("{message}: field {field} is {value}")]
    Invalid {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: i64,
    },
}

/// Elements in one request, all arrays together. A frame may be as long as its records want, which
/// a request without records must not use to make us keep a small structure for every two bytes.
/// A node with 100,000 partitions may be asked for each of them by name in one request.
pub const REQUEST_ELEMENTS_MAX: usize = 250_000;

/// Bytes of the longest unsigned varint of 32 bits.
const UVARINT_BYTES_MAX: usize = 5;

/// Reads fields from the front of a message that is there as a whole, or of the part of it that is.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    message: &'static str,
    flexible: bool,
    bytes: &'a [u8],
    beyond: usize,
    elements_left: usize,
}

impl<'a> Reader<'a> {
    /// `flexible` messages have compact strings and arrays, and tagged fields (KIP-482).
    #[must_use]
    pub fn new(message: &'static str, flexible: bool, bytes: &'a [u8]) -> Self {
        Self::part(message, flexible, bytes, 0)
    }

    /// A reader of a message of which `beyond` bytes more are still to come.
    #[must_use]
    pub fn part(message: &'static str, flexible: bool, bytes: &'a [u8], beyond: usize) -> Self {
        Self { message, flexible, bytes, beyond, elements_left: usize::MAX }
    }

    /// A reader of a client's request, whose arrays may hold [`REQUEST_ELEMENTS_MAX`] elements.
    #[must_use]
    pub fn of_request(message: &'static str, flexible: bool, bytes: &'a [u8]) -> Self {
        Self { elements_left: REQUEST_ELEMENTS_MAX, ..Self::new(message, flexible, bytes) }
    }

    /// Takes `count` bytes.
    pub fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(self.truncated(field));
        };
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let Some((taken, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(self.truncated(field));
        };
        self.bytes = rest;
        Ok(*taken)
    }

    /// One byte.
    pub fn i8(&mut self, field: &'static str) -> Result<i8, WireError> {
        Ok(i8::from_be_bytes(self.array(field)?))
    }

    /// Two bytes.
    pub fn i16(&mut self, field: &'static str) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array(field)?))
    }

    /// Four bytes.
    pub fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes.
    pub fn i64(&mut self, field: &'static str) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    /// Sixteen bytes.
    pub fn topic_id(&mut self, field: &'static str) -> Result<TopicId, WireError> {
        Ok(TopicId(self.array(field)?))
    }

    /// An unsigned varint of 32 bits, at most five bytes.
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32, WireError> {
        let mut value: u64 = 0;
        for position in 0..UVARINT_BYTES_MAX {
            let [byte] = self.array(field)?;
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| self.invalid(field, value as i64));
            }
        }
        Err(self.invalid(field, value as i64))
    }

    /// A length that precedes bytes: `None` for null. Does not look at the bytes themselves.
    pub fn bytes_len(&mut self, field: &'static str) -> Result<Option<usize>, WireError> {
        if self.flexible {
            return Ok(self.uvarint(field)?.checked_sub(1).map(|length| length as usize));
        }
        match self.i32(field)? {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| self.invalid(field, i64::from(length))),
        }
    }

    /// A string, `None` for null; at most 32,767 bytes, as Kafka's own limit is.
    pub fn nullable_string(&mut self, field: &'static str) -> Result<Option<&'a str>, WireError> {
        if !self.flexible {
            return self.classic_nullable_string(field);
        }
        match self.uvarint(field)?.checked_sub(1) {
            None => Ok(None),
            Some(length) if length > i16::MAX as u32 => Err(self.invalid(field, i64::from(length))),
            Some(length) => self.text(length as usize, field).map(Some),
        }
    }

    /// A string with a two-byte length, which the client id has even in flexible headers.
    pub fn classic_nullable_string(
        &mut self,
        field: &'static str,
    ) -> Result<Option<&'a str>, WireError> {
        match self.i16(field)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.text(length, field).map(Some),
                Err(_) => Err(self.invalid(field, i64::from(length))),
            },
        }
    }

    /// A string that may not be null.
    pub fn string(&mut self, field: &'static str) -> Result<&'a str, WireError> {
        self.nullable_string(field)?.ok_or_else(|| self.invalid(field, -1))
    }

    fn text(&mut self, length: usize, field: &'static str) -> Result<&'a str, WireError> {
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map_err(|_| self.invalid(field, length as i64))
    }

    /// A count that precedes elements: `None` for null. One that the rest of the message has no
    /// room for, at `element_bytes_min` for the smallest element, is refused, as is one beyond the
    /// elements a request may have.
    pub fn nullable_count(
        &mut self,
        element_bytes_min: usize,
        field: &'static str,
    ) -> Result<Option<usize>, WireError> {
        let Some(count) = self.bytes_len(field)? else {
            return Ok(None);
        };
        if count > self.room() / element_bytes_min || count > self.elements_left {
            return Err(self.invalid(field, count as i64));
        }
        self.elements_left -= count;
        Ok(Some(count))
    }

    /// Like [`Reader::nullable_count`], where null is refused.
    pub fn count(
        &mut self,
        element_bytes_min: usize,
        field: &'static str,
    ) -> Result<usize, WireError> {
        self.nullable_count(element_bytes_min, field)?.ok_or_else(|| self.invalid(field, -1))
    }

    /// Tagged fields; nothing in a message that is not flexible. `known` gets each tag with a
    /// reader of its value, and says whether it read it; the others are skipped.
    pub fn tagged(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        if !self.flexible {
            return Ok(());
        }
        let tags = self.uvarint("tagged fields")? as usize;
        if tags > self.room() / 2 {
            return Err(self.invalid("tagged fields", tags as i64));
        }
        for _ in 0..tags {
            let tag = self.uvarint("tag")?;
            let size = self.uvarint("tag size")? as usize;
            let value = self.take(size, "tagged field")?;
            let mut value = Self::new(self.message, true, value);
            if known(tag, &mut value)? {
                value.finish("tagged field")?;
            }
        }
        Ok(())
    }

    /// Reads past tagged fields.
    pub fn skip_tagged(&mut self) -> Result<(), WireError> {
        self.tagged(|_, _| Ok(false))
    }

    /// Refuses bytes left over.
    pub fn finish(&self, field: &'static str) -> Result<(), WireError> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(self.invalid(field, left as i64)),
        }
    }

    /// Bytes that are here.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes left of the message, here or still to come.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes.len() + self.beyond
    }

    /// The bytes not yet taken.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The error of a message that ends inside `field`.
    #[must_use]
    pub fn truncated(&self, field: &'static str) -> WireError {
        WireError::Truncated { message: self.message, field }
    }

    /// The error of an impossible `value` of `field`.
    #[must_use]
    pub fn invalid(&self, field: &'static str, value: i64) -> WireError {
        WireError::Invalid { message: self.message, field, value }
    }
}

/// Refuses a version this codec does not speak.
pub(crate) fn check_version(
    message: &'static str,
    version: i16,
    supported: std::ops::RangeInclusive<i16>,
) -> Result<(), WireError> {
    if supported.contains(&version) {
        return Ok(());
    }
    Err(WireError::Invalid { message, field: "api version", value: i64::from(version) })
}

/// Writes fields to the end of a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut BytesMut,
    flexible: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(flexible: bool, out: &'a mut BytesMut) -> Self {
        Self { out, flexible }
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.out.put_i8(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.out.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.put_i64(value);
    }

    pub(crate) fn topic_id(&mut self, value: TopicId) {
        self.out.put_slice(&value.0);
    }

    pub(crate) fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    /// Length of bytes, or count of elements; `None` is null.
    ///
    /// # Panics
    /// Beyond 2 GiB or two thousand million elements: no frame can hold them.
    pub(crate) fn nullable_len(&mut self, length: Option<usize>) {
        assert!(length.unwrap_or(0) < i32::MAX as usize, "length {length:?} in a message of ours");
        if self.flexible {
            self.uvarint(length.map_or(0, |length| length as u32 + 1));
        } else {
            self.i32(length.map_or(-1, |length| length as i32));
        }
    }

    pub(crate) fn len(&mut self, length: usize) {
        self.nullable_len(Some(length));
    }

    /// A string; one beyond 32,767 bytes is cut, on a character's boundary, for texts of ours only.
    pub(crate) fn nullable_string(&mut self, text: Option<&str>) {
        let text = text.map(|text| &text[..text.floor_char_boundary_at(i16::MAX as usize)]);
        if self.flexible {
            self.nullable_len(text.map(str::len));
        } else {
            self.i16(text.map_or(-1, |text| text.len() as i16));
        }
        self.out.put_slice(text.unwrap_or_default().as_bytes());
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.nullable_string(Some(text));
    }

    /// A string with a two-byte length even where the message is flexible.
    pub(crate) fn classic_nullable_string(&mut self, text: Option<&str>) {
        Writer::new(false, self.out).nullable_string(text);
    }

    /// Announces tagged fields; nothing in a message that is not flexible.
    pub(crate) fn tagged_count(&mut self, count: usize) {
        if self.flexible {
            self.uvarint(count as u32);
        }
    }

    pub(crate) fn is_flexible(&self) -> bool {
        self.flexible
    }

    pub(crate) fn no_tagged(&mut self) {
        self.tagged_count(0);
    }

    /// Front of one tagged field.
    pub(crate) fn tag(&mut self, tag: u32, size: usize) {
        self.uvarint(tag);
        self.uvarint(size as u32);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    /// Bytes the buffer holds.
    pub(crate) fn position(&self) -> usize {
        self.out.len()
    }
}

trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, length_max: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, length_max: usize) -> usize {
        if self.len() <= length_max {
            return self.len();
        }
        (0..=length_max).rev().find(|end| self.is_char_boundary(*end)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(field: &'static str, value: i64) -> WireError {
        WireError::Invalid { message: "Test", field, value }
    }

    #[test]
    fn varints_come_back_as_written() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let mut out = BytesMut::new();
            Writer::new(true, &mut out).uvarint(value);
            let mut reader = Reader::new("Test", true, &out);
            assert_eq!(reader.uvarint("value"), Ok(value));
            assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn a_varint_beyond_32_bits_is_refused() {
        let mut reader = Reader::new("Test", true, &[0xff, 0xff, 0xff, 0xff, 0x1f]);
        assert_eq!(reader.uvarint("value"), Err(invalid("value", 0x1_ffff_ffff)));
        let mut reader = Reader::new("Test", true, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]);
        assert_eq!(reader.uvarint("value"), Err(invalid("value", 0)));
    }

    #[test]
    fn strings_come_back_as_written_in_both_forms() {
        for flexible in [false, true] {
            for text in [None, Some(""), Some("orders"), Some("größe")] {
                let mut out = BytesMut::new();
                Writer::new(flexible, &mut out).nullable_string(text);
                let mut reader = Reader::new("Test", flexible, &out);
                assert_eq!(reader.nullable_string("name"), Ok(text));
                assert_eq!(reader.remaining(), 0);
            }
        }
    }

    #[test]
    fn a_text_of_ours_beyond_kafkas_limit_is_cut_on_a_boundary() {
        let text = "ß".repeat(20_000);
        let mut out = BytesMut::new();
        Writer::new(false, &mut out).string(&text);
        let mut reader = Reader::new("Test", false, &out);
        assert_eq!(reader.string("name").map(str::len), Ok(32_766));
    }

    #[test]
    fn bad_strings_are_refused() {
        let mut reader = Reader::new("Test", false, &[0xff, 0xfe]);
        assert_eq!(reader.nullable_string("name"), Err(invalid("name", -2)));
        let mut reader = Reader::new("Test", false, &[0xff, 0xff]);
        assert_eq!(reader.string("name"), Err(invalid("name", -1)));
        let mut reader = Reader::new("Test", true, &[0x03, 0xc3, 0x28]);
        assert_eq!(reader.string("name"), Err(invalid("name", 2)));
        let mut reader = Reader::new("Test", true, &[0x81, 0x80, 0x02]);
        assert_eq!(reader.string("name"), Err(invalid("name", 32_768)));
    }

    #[test]
    fn a_count_beyond_the_bytes_left_is_refused() {
        let mut reader = Reader::new("Test", false, &[0, 0, 0, 3, 1, 2, 3, 4, 5, 6]);
        assert_eq!(reader.clone().count(2, "topics"), Ok(3));
        assert_eq!(reader.count(3, "topics"), Err(invalid("topics", 3)));
        let mut reader = Reader::new("Test", true, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
        assert_eq!(reader.count(1, "topics"), Err(invalid("topics", 4_294_967_294)));
    }

    #[test]
    fn a_request_has_a_bounded_number_of_elements_in_all_its_arrays() {
        let bytes = [0; REQUEST_ELEMENTS_MAX];
        let two = [&100_000i32.to_be_bytes()[..], &200_000i32.to_be_bytes(), &bytes].concat();
        let mut reader = Reader::of_request("Test", false, &two);
        assert_eq!(reader.count(1, "topics"), Ok(100_000));
        assert_eq!(reader.count(1, "partitions"), Err(invalid("partitions", 200_000)));
        let mut reader = Reader::new("Test", false, &two);
        assert_eq!(reader.count(1, "topics"), Ok(100_000));
        assert_eq!(reader.count(1, "partitions"), Ok(200_000));
    }

    #[test]
    fn unknown_tagged_fields_are_skipped_and_known_ones_must_end_where_they_say() {
        let bytes = [2, 7, 3, 1, 2, 3, 1, 2, 0x12, 0x34];
        let mut reader = Reader::new("Test", true, &bytes);
        let mut seen = 0;
        let known = |tag, value: &mut Reader<'_>| {
            if tag == 1 {
                seen = value.i16("seen")?;
            }
            Ok(tag == 1)
        };
        assert_eq!(reader.tagged(known), Ok(()));
        assert_eq!(seen, 0x1234);
        let mut reader = Reader::new("Test", true, &bytes);
        assert_eq!(reader.tagged(|_, _| Ok(true)), Err(invalid("tagged field", 3)));
    }

    #[test]
    fn more_tagged_fields_than_bytes_are_refused() {
        let mut reader = Reader::new("Test", true, &[0xff, 0xff, 0xff, 0x7f, 0, 0]);
        assert_eq!(reader.skip_tagged(), Err(invalid("tagged fields", 0x0fff_ffff)));
    }
}
