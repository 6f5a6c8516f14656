//! Columns for people.

use std::io::{self, Write};

/// Writes rows under a header, each column as wide as its widest cell.
pub(crate) fn write_table(
    out: &mut dyn Write,
    header: &[&str],
    rows: &[Vec<String>],
) -> io::Result<()> {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes a text in lines of at most `columns`, the second and later ones indented once more.
pub(crate) fn wrap(
    out: &mut dyn Write,
    indent: &str,
    text: &str,
    columns: usize,
) -> io::Result<()> {
    let mut line = indent.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > columns {
            writeln!(out, "{line}")?;
            line = format!("{indent}    ");
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let mut out = Vec::new();
        wrap(&mut out, "  ", "one two three a-very-long-word", 11).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  one two\n      three\n      a-very-long-word\n"
        );
    }

    #[test]
    fn columns_line_up_and_lines_end_where_their_text_ends() {
        let mut out = Vec::new();
        let rows = [vec!["longer".to_owned(), "1".to_owned()], vec!["a".to_owned(), String::new()]];
        write_table(&mut out, &["NAME", "N"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME    N\nlonger  1\na\n");
    }
}
