//! Formats numbers for people, and reads whole numbers that people and models write.

use serde_json::Number;

/// The limit below which an `f64` represents every whole number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns a non-negative whole number; `2.0` counts as whole.
#[must_use]
pub fn as_whole_number(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && (0.0..EXACT).contains(&float)).then_some(float as u64)
    })
}

/// Formats a number with thousands separators: `85,000`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats whole thousands as `100k` and other numbers with thousands separators.
#[must_use]
pub fn short(number: u64) -> String {
    if number >= 1_000 && number.is_multiple_of(1_000) {
        format!("{}k", grouped(number / 1_000))
    } else {
        grouped(number)
    }
}

/// Formats a rounded count for a progress line: `890`, `2.1k`, `45k`, `1.2M`.
#[must_use]
pub fn format_rounded(number: u64) -> String {
    match number {
        0..=999 => number.to_string(),
        1_000..=9_949 => format!("{:.1}k", number as f64 / 1e3),
        9_950..=999_499 => format!("{:.0}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_and_shortened() {
        assert_eq!(
            [0, 999, 1_000, 85_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "85,000", "1,234,567"]
        );
        assert_eq!(
            [999, 1_000, 100_000, 99_500, 5_000_000].map(short),
            ["999", "1k", "100k", "99,500", "5,000k"]
        );
        assert_eq!(
            [0, 890, 1_000, 2_149, 9_949, 9_950, 45_000, 999_499, 999_500, 1_240_000]
                .map(format_rounded),
            ["0", "890", "1.0k", "2.1k", "9.9k", "10k", "45k", "999k", "1.0M", "1.2M"]
        );
    }
}
